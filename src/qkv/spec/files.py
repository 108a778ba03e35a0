"""A spec read from a file: JSON or TOML of qkv's own fields, an answer of qkv, or a Hugging Face ``config.json``."""

from __future__ import annotations

import codecs
import json
import os
import tomllib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from qkv.errors import SpecError, nearest
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.field_table import no_fields
from qkv.spec.fields import spec_from_mapping, spec_to_mapping
from qkv.spec.huggingface import spec_from_config

_EXAMPLE = '{"num_heads": 6, "causal": true}'


def read_spec(path: str | os.PathLike[str], layer: int = 0) -> AttentionSpec:
    """The spec that a file describes.

    Args:
        path: a ``.toml`` file, or a ``.json`` file of either kind. A Hugging Face config is known by its ``model_type``
            or ``architectures``.
        layer: the layer meant, where the layers of a Hugging Face config differ.

    Raises:
        SpecError: the file is missing, empty or malformed, or what it holds is no spec.
    """
    mapping, where = _mapping(path)
    if _is_config(mapping):
        return spec_from_config(mapping, layer, where=where)
    return spec_from_mapping(mapping, where=where)


UNSAID_BY_CONFIGS = ("empty_row",)
"""Fields that no Hugging Face config settles: each attention function has its own habit."""


def read_fields(path: str | os.PathLike[str], layer: int = 0) -> tuple[dict[str, Any], bool]:
    """The fields of a spec that a file gives, and whether it is a Hugging Face config, which gives all of them.

    Arguments and errors are those of :func:`read_spec`.
    """
    mapping, where = _mapping(path)
    if _is_config(mapping):
        fields = spec_to_mapping(spec_from_config(mapping, layer, where=where))
        return {name: value for name, value in fields.items() if name not in UNSAID_BY_CONFIGS}, True
    spec_from_mapping(mapping, where=where)
    return mapping, False


def _mapping(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str]:
    """What the file holds, and its name."""
    file = Path(path)
    with suppress(RuntimeError):  # nobody's home is known
        file = file.expanduser()
    mapping = _parsed(file)
    if not isinstance(mapping, dict):
        raise no_fields(mapping, file.name)
    if "schema" in mapping and "spec" in mapping:  # an answer of qkv in JSON
        if not isinstance(mapping["spec"], dict):
            raise SpecError(f"{file.name} is an answer that holds no spec: {mapping.get('why') or 'nothing was read'}")
        mapping = {name: value for name, value in mapping["spec"].items() if name != "sentence"}
    return mapping, file.name


def _is_config(mapping: dict[str, Any]) -> bool:
    return bool(mapping.keys() & {"model_type", "architectures"})


def _text(file: Path) -> str:
    """The file's text, whatever mark or line ends an editor left in it."""
    try:
        # A pipe would be waited for.
        raw = file.read_bytes() if file.is_file() or not file.exists() else None
    except FileNotFoundError:
        raise SpecError(f"there is no file {str(file)!r}{_neighbour(file)}") from None
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from None
    if raw is None:
        raise _unreadable(file, "it is a folder" if file.is_dir() else "it is no regular file")
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{file.name}, line {line}: this is no text in UTF-8. Save the file as UTF-8") from None
    if not text.strip():
        raise SpecError(f"{file.name} is empty, and must hold the fields of a spec. Write for instance: {_EXAMPLE}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unreadable(file: Path, reason: str) -> SpecError:
    return SpecError(f"{str(file)!r} can't be read: {reason}. Give a .json or .toml file")


def _neighbour(file: Path) -> str:
    """A clause that names the spec file beside it with the nearest name; empty where there is none."""
    beside = [f.name for f in file.parent.glob("*") if f.suffix in (".json", ".toml")] if file.parent.is_dir() else []
    return f"; beside it: {nearest(file.name, beside)}" if beside else f" in {str(file.parent.resolve())!r}"


def _parsed(file: Path) -> Any:
    readers = {".json": _json, ".toml": _toml}
    # What is missing or a folder is said first: its ending doesn't matter then.
    if file.suffix.lower() not in readers and file.exists() and not file.is_dir():
        raise SpecError(
            f"{file.name} {f'ends in {file.suffix!r}' if file.suffix else 'has no ending'}, and a spec is read from "
            ".json or .toml. "
            "Rename the file after what it holds"
        )
    text = _text(file)
    try:
        return readers[file.suffix.lower()](file, text)
    except RecursionError:
        raise SpecError(f"{file.name} is nested too deeply for a spec. Write for instance: {_EXAMPLE}") from None


def _json(file: Path, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        code = text.splitlines()[error.lineno - 1].strip() if error.lineno <= len(text.splitlines()) else ""
        raise SpecError(
            f"{file.name}, line {error.lineno}, column {error.colno}: {error.msg}, in {code[:80]!r}. "
            f"JSON is written like this: {_EXAMPLE}"
        ) from None
    except _GivenTwiceError as error:
        raise SpecError(f"{file.name}: {error} is given twice. Keep one of them") from None
    except ValueError:
        raise SpecError(f"{file.name} holds a number of thousands of digits. Give it a shorter one") from None


class _GivenTwiceError(ValueError):
    """A name that stands twice in one object."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in pairs)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise _GivenTwiceError(", ".join(twice))
    return dict(pairs)


def _toml(file: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # a number of too many digits among them
        raise SpecError(f"{file.name}: {error}. TOML is written like this, a field a line: num_heads = 6") from None
