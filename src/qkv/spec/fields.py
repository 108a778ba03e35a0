"""A spec from named fields, and back: what JSON, TOML and the flags of the command line share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from qkv.errors import ShapeError, SpecError, nearest
from qkv.masks import Mask, PerHead
from qkv.positions import Alibi, RelativeBias, Rope, RopeScaling
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.field_table import FIELDS, LARGEST_POSITION, ROPE_FIELDS, SCALING_FIELDS, Field, no_fields
from qkv.spec.mask_fields import fields_from_mask, mask_from_fields

_ELSEWHERE: Mapping[str, str] = {
    "type": "kind",
    "rope_type": "kind",
    "rope_theta": "base",
    "original_max_position_embeddings": "original_length",
}
"""Hugging Face's names for fields of rope and its scaling."""

GROUP_SIZE = 3
"""Query heads for each key/value head, where only the number of these is given."""


def spec_from_mapping(mapping: Mapping[str, Any], where: str = "the spec") -> AttentionSpec:
    """The spec that named fields describe, as they stand in JSON, in TOML or on the command line.

    A missing field has its default; ``num_kv_heads`` alone stands for three query heads each, and ``per_head`` in a
    mask for as many as it has masks. ``causal``, ``window``,
    ``prefix`` and ``documents`` make the mask ``((causal & window) | prefix) & documents``, each part where it is
    given; a ``mask`` expression stands in their place and not beside them.

    Args:
        mapping: the fields of :data:`FIELDS`.
        where: what the fields stand in (a file's name), for messages.

    Raises:
        SpecError: an unknown field, a value of another type, or fields that contradict each other.
    """
    values = _checked(mapping, FIELDS, where)
    try:
        if "num_heads" not in mapping and (values["num_kv_heads"] or 1) > 1:
            values["num_heads"] = GROUP_SIZE * values["num_kv_heads"]
        values["mask"] = _bounded(mask_from_fields(values, where))
        each = next((len(part.masks) for part in values["mask"].parts() if isinstance(part, PerHead)), None)
        if each is not None and "num_heads" not in mapping:
            values["num_heads"] = each
        values["mask"].must_fit(None, num_heads=values["num_heads"])
        values["rope"] = None if values["rope"] is None else rope_from_mapping(values["rope"], where)
        values["alibi"] = _alibi(values["alibi"])
        if values["relative_bias"] is not None:
            values["relative_bias"] = RelativeBias(tuple(_floats(row) for row in values["relative_bias"]))
        known = {field.name for field in dataclasses.fields(AttentionSpec)}
        return AttentionSpec(**{name: value for name, value in values.items() if name in known})
    except (SpecError, ShapeError) as error:
        raise SpecError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def spec_to_mapping(spec: AttentionSpec) -> dict[str, Any]:
    """Every field of the spec as JSON holds it; :func:`spec_from_mapping` gives the same spec again.

    Raises:
        SpecError: the mask is none that has a text form.
    """
    written = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    written |= fields_from_mask(spec.mask)
    written["rope"] = None if spec.rope is None else dataclasses.asdict(spec.rope)
    written["alibi"] = _written_alibi(spec.alibi)
    written["relative_bias"] = [list(row) for row in spec.relative_bias.table] if spec.relative_bias else None
    return {field.name: written[field.name] for field in FIELDS}


def rope_from_mapping(mapping: Mapping[str, Any] | str, where: str) -> Rope:
    """The rope that its own fields describe, or its pairing alone (``"halves"``)."""
    here = f"{where}: rope"
    values = _checked({"pairing": mapping} if isinstance(mapping, str) else mapping, ROPE_FIELDS, here)
    scaling = values["scaling"]
    values["scaling"] = None if scaling is None else scaling_from_mapping(scaling, where)
    return Rope(**values)


def scaling_from_mapping(mapping: Mapping[str, Any], where: str) -> RopeScaling:
    """The change of rope's frequencies that its own fields, or Hugging Face's names of them, describe."""
    here = f"{where}: rope scaling"
    values = _checked(mapping, SCALING_FIELDS, here)
    given = {_ELSEWHERE.get(name, name) for name in mapping}
    missing = [name for name in ("kind", "factor") if name not in given]
    if missing:
        raise SpecError(
            f"{here}: {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing, and has no usual value. "
            'Write for instance: "scaling": {"kind": "linear", "factor": 2.0}'
        )
    return RopeScaling(**values)


def _checked(mapping: Any, fields: Sequence[Field], where: str) -> dict[str, Any]:
    """Each field's value, or its default, once all of them are known and of their type."""
    if not isinstance(mapping, Mapping):
        raise no_fields(mapping, where)
    names = {field.name for field in fields}
    given: dict[str, Any] = {}
    for key, value in mapping.items():
        name = key if key in names else _ELSEWHERE.get(key, key)
        if name not in names:
            raise _unknown(key, names, where)
        if name in given:
            raise SpecError(f"{where}: {name} is given twice, once as {key}. Keep one of them")
        given[name] = value
    return {field.name: _value(field, given, where) for field in fields}


def _value(field: Field, given: Mapping[str, Any], where: str) -> Any:
    if field.name not in given:
        return field.default
    value = field.checked(given[field.name], where)
    return float(value) if field.type.of_flag is float and value is not None else value


def _bounded(mask: Mask) -> Mask:
    """The mask itself, unless an expression gives it a number that no sequence reaches."""
    for part in mask.parts():
        for name in ("size", "length"):
            if getattr(part, name, 0) > LARGEST_POSITION:
                raise SpecError(f"mask holds {part}; numbers may be {LARGEST_POSITION} at most")
    return mask


def _unknown(key: object, names: set[str], where: str) -> SpecError:
    if key in ("model_type", "architectures"):
        return SpecError(
            f"{where}: {key} is no field of a spec; it belongs to a Hugging Face config.json. Read that with "
            "read_spec('config.json') or spec_from_config(config)"
        )
    return SpecError(f"{where}: {str(key)!r} is no field of it; {nearest(str(key), names)}")


def _floats(row: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(number) for number in row)


def _alibi(value: bool | Sequence[float] | Mapping[str, Any]) -> Alibi | None:
    if isinstance(value, Mapping):
        slopes = value.get("slopes")
        return Alibi(None if slopes is None else _floats(slopes), bool(value.get("signed", False)))
    if isinstance(value, bool):
        return Alibi() if value else None
    return Alibi(_floats(value))


def _written_alibi(alibi: Alibi | None) -> bool | list[float] | dict[str, Any]:
    if alibi is None:
        return False
    slopes = None if alibi.slopes is None else list(alibi.slopes)
    if alibi.signed:
        return {"slopes": slopes, "signed": True}
    return True if slopes is None else slopes
