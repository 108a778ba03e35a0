"""Options that several commands share: the fields of a spec as flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from qkv.errors import SpecError
from qkv.spec import FIELDS, ROPE_FIELDS, Field, read_spec, spec_to_mapping

Command = TypeVar("Command", bound=Callable[..., Any])

NOT_FLAGS = ("relative_bias",)
"""Fields that only a file can hold."""


def spec_options(command: Command) -> Command:
    """A decorator that gives a command ``--spec FILE``, ``--layer`` and one flag for each field of a spec."""
    for field in reversed((*FIELDS, *(f for f in ROPE_FIELDS if f.name != "pairing"))):
        if field.name not in NOT_FLAGS and field.name != "scaling":
            command = _option(field)(command)
    command = click.option("--layer", type=int, default=0, help="the layer meant, in a Hugging Face config")(command)
    return click.option(
        "--spec", "spec_file", metavar="FILE", help="a spec in JSON or TOML, or a Hugging Face config.json"
    )(command)


def _option(field: Field) -> Callable[[Command], Command]:
    name = f"{field.group}_{field.name}".strip("_")
    if field.type.of_flag is bool:
        return click.option(f"{field.flag}/--no-{field.flag[2:]}", name, default=None, help=field.help)
    kind: Any = click.Choice(field.type.choices) if field.type.choices else field.type.of_flag
    flags = [field.flag]
    if field.name.startswith("num_"):
        flags.append("--" + field.name.replace("_", "-"))
    return click.option(*flags, name, type=kind, default=None, help=field.help)


def given_fields(options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The fields that a command's options give, and whether they are a whole spec; flags win over the file.

    Raises:
        click.UsageError: the file or a flag can't be read.
    """
    names = {field.name for field in FIELDS}
    flags = {name: value for name, value in options.items() if name in names and value is not None}
    rope = {
        field.name: options[f"rope_{field.name}"]
        for field in ROPE_FIELDS
        if options.get(f"rope_{field.name}") is not None
    }
    if "rope" in flags:
        rope["pairing"] = flags["rope"]
    if rope:
        flags["rope"] = rope
    if "query_offset" in flags and flags["query_offset"].lstrip("-").isdigit():
        flags["query_offset"] = int(flags["query_offset"])
    try:
        return {**_from_file(options.get("spec_file"), options.get("layer") or 0), **flags}, bool(
            options.get("spec_file")
        )
    except SpecError as error:
        raise click.UsageError(str(error)) from None


def _from_file(path: str | None, layer: int) -> dict[str, Any]:
    if path is None:
        return {}
    written = spec_to_mapping(read_spec(path, layer))
    named = _named_in(path)
    return {name: value for name, value in written.items() if named is None or name in named}


def _named_in(path: str) -> set[str] | None:
    """The fields that a file of qkv's own form names; None for a Hugging Face config, which settles all of them."""
    import tomllib
    from pathlib import Path

    text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    mapping = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    return None if mapping.keys() & {"model_type", "architectures"} else set(mapping)


def json_option(text: str | None, flag: str) -> dict[str, Any]:
    """The JSON object that an option holds.

    Raises:
        click.UsageError: it is no JSON object.
    """
    if not text:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{flag}: {error.msg} at character {error.pos + 1} of {text!r}. "
                               f"Write a JSON object: {flag} '{{\"d_in\": 48}}'") from None  # fmt: skip
    if not isinstance(value, dict):
        raise click.UsageError(f"{flag} is {text!r}, and must be a JSON object: {flag} '{{\"d_in\": 48}}'")
    return value
