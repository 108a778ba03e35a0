"""What came with the call: masks, padding, documents, a bias and sinks, in every way that they can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from qkv.adapters.dump import Array
from qkv.dumps.arrangements import Arrangement
from qkv.dumps.tensors import Dump, Tensor
from qkv.errors import CandidateError
from qkv.vocabulary import HIDDEN_BELOW, MaskMeaning


@dataclass(frozen=True)
class Handed:
    """One way to read what came with the call.

    Attributes:
        fields: fields of :class:`qkv.oracle.Inputs`.
        assumptions: how it was read, in sentences.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()


def handed(dump: Dump, arrangement: Arrangement, meaning: MaskMeaning | None) -> list[Handed]:
    """Every reading, the likeliest first.

    Raises:
        CandidateError: a tensor has a shape that none of its kind has.
    """
    parts: list[list[Handed]] = []
    if "mask" in dump.tensors:
        parts.append(list(_masks(dump.tensors["mask"], arrangement, meaning)))
    if "padding" in dump.tensors:
        parts.append(list(_paddings(dump.tensors["padding"], arrangement, meaning)))
    for role, shape in (
        ("documents", ("batch", "keys")),
        ("bias", ("batch", "heads", "queries", "keys")),
        ("sinks", ("heads",)),
    ):
        if role in dump.tensors:
            parts.append([_plain(role, dump.tensors[role], arrangement, shape)])
    return [_together(ways) for ways in product(*parts)]


def _together(ways: tuple[Handed, ...]) -> Handed:
    fields: dict[str, Any] = {}
    for way in ways:
        for name, array in way.fields.items():
            fields[name] = fields[name] + array if name in fields and name == "bias" else array
    return Handed(fields, tuple(sentence for way in ways for sentence in way.assumptions))


def _sizes(arrangement: Arrangement) -> dict[str, int]:
    return {**arrangement.sizes, "heads": arrangement.num_heads}


def _masks(mask: Tensor, arrangement: Arrangement, meaning: MaskMeaning | None) -> Iterator[Handed]:
    """The mask as (batch, head, query, key), or as padding where it has a row a sequence."""
    sizes = _sizes(arrangement)
    batch, heads, queries, keys = (sizes[axis] for axis in ("batch", "heads", "queries", "keys"))
    array, found = mask.array, []
    if array.ndim == 3:
        found = [array[:, None]] if array.shape[0] in (1, batch) else []
        found += [array[None]] if array.shape[0] == heads else []
    elif array.ndim in (1, 2, 4):
        found = [array.reshape((1,) * (4 - array.ndim) + array.shape)]
    fitting = [one for one in found if _broadcasts(one.shape, (batch, heads, queries, keys))]
    yes_or_no = array.dtype.kind != "f" or bool(np.isin(array, (0.0, 1.0)).all())
    for one in fitting:
        yield from _read_mask(mask.name, one, "may_attend", meaning, yes_or_no)
    if array.shape == (batch, keys) and yes_or_no:
        yield from _paddings(mask, arrangement, meaning)
    elif not fitting:
        wanted = f"({batch}, {heads}, {queries}, {keys})"
        message = f"{mask.name}, the mask, has shape {array.shape}, which does not broadcast to {wanted}"
        raise CandidateError(
            message, hint="axes are batch, head, query, key; the mask is another tensor: --tensor mask=NAME"
        )


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(here in (1, there) for here, there in zip(shape, to, strict=True))


def _read_mask(name: str, array: Array, into: str, meaning: MaskMeaning | None, yes_or_no: bool) -> Iterator[Handed]:
    if yes_or_no and meaning != "additive":
        for said, words in (("keep", "may attend"), ("hide", "is hidden")):
            if meaning in (None, said):
                allowed = array != 0 if said == "keep" else array == 0
                yield Handed({into: allowed}, (f"{name} was read as a mask whose True or 1 {words}",))
    if (not yes_or_no and meaning is None) or meaning == "additive":
        numbers = array.astype(np.float64)
        hidden = ~(numbers > HIDDEN_BELOW)
        added = np.where(hidden, 0.0, numbers)
        fields = {into: ~hidden} | ({"bias": added} if added.any() else {})
        yield Handed(fields, (f"{name} was read as a mask that is added to the scores",))


def _paddings(tensor: Tensor, arrangement: Arrangement, meaning: MaskMeaning | None) -> Iterator[Handed]:
    array = tensor.array.reshape(-1, tensor.array.shape[-1])
    sizes = _sizes(arrangement)
    if array.shape != (sizes["batch"], sizes["keys"]):
        message = f"{tensor.name} has shape {tensor.array.shape}; one entry for each key of each sequence was expected"
        raise CandidateError(f"{message}: ({sizes['batch']}, {sizes['keys']})", hint="--tensor padding=NAME")
    for said, words in (("keep", "is a token"), ("hide", "is padding")):
        if meaning in (None, "additive", said):
            is_token = array != 0 if said == "keep" else array == 0
            yield Handed({"is_token": is_token}, (f"a key whose entry in {tensor.name} is True or 1 {words}",))


def _plain(role: str, tensor: Tensor, arrangement: Arrangement, axes: tuple[str, ...]) -> Handed:
    wanted = tuple(_sizes(arrangement)[axis] for axis in axes)
    array = tensor.array
    if role == "sinks":
        array = array.reshape(-1)
    if role == "bias" and array.ndim == 3:
        array = array[None] if array.shape[0] == wanted[1] else array[:, None]
    array = array.reshape((1,) * (len(wanted) - array.ndim) + array.shape) if array.ndim < len(wanted) else array
    if array.ndim != len(wanted) or not _broadcasts(array.shape, wanted):
        message = f"{tensor.name}, the {role}, has shape {tensor.array.shape}, which does not broadcast to {wanted}"
        raise CandidateError(message, hint=f"its axes are {', '.join(axes)}; another tensor: --tensor {role}=NAME")
    if role != "bias":
        array = np.broadcast_to(array, wanted)
    name = {"documents": "document"}.get(role, role)
    return Handed({name: array}, (f"{tensor.name} was read as the {role}",))
