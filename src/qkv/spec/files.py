"""A spec read from a file: JSON or TOML of qkv's own fields, or a Hugging Face ``config.json``."""

from __future__ import annotations

import codecs
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from qkv.errors import SpecError, nearest
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.field_table import no_fields
from qkv.spec.fields import spec_from_mapping
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
    file = Path(path)
    mapping = _parsed(file, _text(file))
    if not isinstance(mapping, dict):
        raise no_fields(mapping, file.name)
    if mapping.keys() & {"model_type", "architectures"}:
        return spec_from_config(mapping, layer, where=file.name)
    return spec_from_mapping(mapping, where=file.name)


def _text(file: Path) -> str:
    """The file's text, whatever mark or line ends an editor left in it."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"there is no file {str(file)!r}{_neighbour(file)}") from None
    except OSError as error:
        reason = "it is a folder" if file.is_dir() else (error.strerror or str(error))
        raise SpecError(f"{str(file)!r} can't be read: {reason}. Give a .json or .toml file") from None
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{file.name}, line {line}: this is no text in UTF-8. Save the file as UTF-8") from None
    if not text.strip():
        raise SpecError(f"{file.name} is empty, and must hold the fields of a spec. Write for instance: {_EXAMPLE}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _neighbour(file: Path) -> str:
    """A clause that names the spec file beside it with the nearest name; empty where there is none."""
    beside = [f.name for f in file.parent.glob("*") if f.suffix in (".json", ".toml")] if file.parent.is_dir() else []
    return f"; beside it: {nearest(file.name, beside)}" if beside else f" in {str(file.parent.resolve())!r}"


def _parsed(file: Path, text: str) -> Any:
    readers = {".json": _json, ".toml": _toml}
    if file.suffix.lower() not in readers:
        raise SpecError(
            f"{file.name} ends in {file.suffix or 'nothing'!r}, and a spec is read from .json or .toml. "
            "Rename the file after what it holds"
        )
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
    except ValueError as error:  # a number of too many digits, or a name given twice
        raise SpecError(f"{file.name}: {error}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = sorted({name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice. Keep one of them")
    return dict(pairs)


def _toml(file: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file.name}: {error}. TOML is written like this, a field a line: num_heads = 6") from None
