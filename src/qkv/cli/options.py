"""Options that several commands share: the fields of a spec as flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from qkv.errors import SpecError
from qkv.spec import FIELDS, ROPE_FIELDS, Field, spec_from_mapping
from qkv.spec.files import read_fields

Command = TypeVar("Command", bound=Callable[..., Any])

NOT_FLAGS = ("relative_bias",)
"""Fields that only a file can hold."""


def spec_options(command: Command) -> Command:
    """A decorator that gives a command ``--spec FILE``, ``--layer`` and one flag for each field of a spec."""
    for field in reversed((*FIELDS, *(f for f in ROPE_FIELDS if f.name != "pairing"))):
        if field.name not in NOT_FLAGS and field.name != "scaling":
            command = _option(field)(command)
    layer = click.option("--layer", type=click.IntRange(min=0), help="the layer meant, in a Hugging Face config")
    command = layer(command)
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
        click.UsageError: the file or a flag can't be read, or they contradict each other.
    """
    file = options.get("spec_file")
    try:
        fields = _joined(_from_file(file, options.get("layer")), _from_flags(options))
    except SpecError as error:
        raise click.UsageError(str(error)) from None
    try:
        spec_from_mapping(fields, _GIVEN)
    except SpecError as error:
        raise click.UsageError(in_flags(str(error), file)) from None
    return fields, file is not None


_GIVEN = "the options"


def in_flags(message: str, file: str | None = None) -> str:
    """A message about fields as one about flags, where there is no file that it may be about."""
    message = message.removeprefix(f"{_GIVEN}: ")
    if file is not None:
        return message
    message = message.replace("write null for", "leave the flag out for").replace(
        "rope an even 'dims'", "an even rope dims"
    )
    for field in (*FIELDS, *ROPE_FIELDS):
        name = f"{field.group} {field.name}".strip()
        # A name of one word is a word of the language too: it is the field where something is said of it.
        said = "" if "_" in name or " " in name else r"(?= is\b| are\b| and .* given| without\b| \")"
        message = re.sub(rf"(?<![\w\"'-]){name}\b{said}", field.flag, message)
    return message


def _from_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that stand in flags, each of its own type."""
    flags: dict[str, Any] = {}
    for field in (*FIELDS, *ROPE_FIELDS):
        value = options.get(f"{field.group}_{field.name}".strip("_"))
        if value is None or (field.group and field.name == "pairing"):
            continue
        if field.name == "query_offset" and re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            value = int(value)
        holder = flags if not field.group else flags.setdefault("rope", {})
        if field.name == "rope":
            flags["rope"] = {"pairing": value}
        else:
            holder[field.name] = field.checked_flag(value)
    return flags


def _from_file(path: str | None, layer: int | None) -> dict[str, Any]:
    if path is None:
        if layer is not None:
            raise click.UsageError(f"--layer {layer} of which model? Give its config: --spec config.json")
        return {}
    if not path.strip():
        raise click.UsageError("--spec is empty. Give a file: --spec spec.json")
    fields, is_config = read_fields(path, layer or 0)
    if layer is not None and not is_config:
        raise click.UsageError(f"--layer {layer} is for a Hugging Face config, and {path} is none. Leave --layer out")
    return fields


def _joined(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The file's fields with the flags in their place; a flag for one field of rope leaves the others as they are."""
    joined = {**file, **flags}
    of_file = {"pairing": file["rope"]} if isinstance(file.get("rope"), str) else file.get("rope")
    if of_file and "rope" in flags:
        joined["rope"] = {**of_file, **flags["rope"]}
    return joined
