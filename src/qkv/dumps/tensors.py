"""The tensors of one attention in a dump, picked by name, checked for what they are, and read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.adapters.dump import ROLES, Array, Contents, grouped, open_dump
from qkv.errors import CandidateError, SpecError, nearest

NEEDED = ("query", "key", "value", "output")
WHOLE = ("mask", "padding", "documents")
"""Roles of tensors that may hold booleans or whole numbers."""
FLOATS = ("float64", "float32", "float16", "bfloat16",
          "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")  # fmt: skip
PREFIX = "prefix"
"""What stands in the place of a role where only the layer is named."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a dump.

    Attributes:
        name: its name there.
        dtype: what it is stored in.
        array: its numbers, floating ones as float64.
    """

    name: str
    dtype: str
    array: Array

    @property
    def not_numbers(self) -> str:
        """Words for its entries that are NaN or infinite: how many, and the first; empty where there are none."""
        places = np.argwhere(~np.isfinite(self.array))
        if not len(places):
            return ""
        first = [int(place) for place in places[0]]
        if len(places) == 1:
            return f"{self.name} holds 1 entry that is NaN or infinite, at {first}"
        return f"{self.name} holds {len(places)} entries that are NaN or infinite, the first at {first}"


@dataclass(frozen=True)
class Dump:
    """What a dump holds of one attention.

    Attributes:
        file: where it was read from.
        place: the layer's name in it; empty where it has no name.
        tensors: each tensor by its role.
    """

    file: str
    place: str
    tensors: Mapping[str, Tensor]

    def array(self, role: str) -> Array | None:
        """The numbers of this role; None where the dump has none."""
        return self.tensors[role].array if role in self.tensors else None


def read_dump(target: str, given: Mapping[str, str], time_limit: float = 60.0, memory_limit: int = 4 << 30) -> Dump:
    """The tensors of one attention in a dump.

    Args:
        target: the file or folder.
        given: names of tensors by role, where they are unusual; ``prefix`` names the layer.
        time_limit: seconds that reading may take, where another process does it.
        memory_limit: bytes that the tensors may take.

    Raises:
        SpecError: a role is given that there is not.
        CandidateError: the dump can't be read, or lacks a tensor, or holds several of one role.
    """
    for role in given:
        if role not in ROLES and role != PREFIX:
            message = f"a tensor was given as {role!r}, which is no role: {nearest(role, [*ROLES, PREFIX])}."
            raise SpecError(f"{message} Write for instance: --tensor query=layers.3.q")
    contents = open_dump(target, time_limit, memory_limit)
    place, names = _picked(target, contents, given)
    total = sum(8 * math.prod(contents[name].shape) for name in names.values())
    if memory_limit and total > memory_limit:
        message = f"the tensors of this attention take {total / 2**30:.1f} GiB in float64, more than the memory limit"
        raise CandidateError(message, hint="dump one sequence, or raise it: --memory-limit 16G")
    return Dump(target, place, {role: read_tensor(role, name, contents) for role, name in names.items()})


def _picked(target: str, contents: Contents, given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The layer and, by role, the names of its tensors."""
    own = {role: name for role, name in given.items() if role != PREFIX}
    for name in own.values():
        if name not in contents:
            raise CandidateError(f"{target} holds no tensor {name!r}", hint=nearest(name, contents))
    groups = {place: _settled(roles, own) for place, roles in grouped(contents).items()}
    if PREFIX in given:
        groups = _within(target, groups, given[PREFIX])
    elif own:
        # What was named tells the layer that the others are of.
        of_named = {place for place, roles in grouped(own.values()).items() if roles} & groups.keys()
        groups = {place: groups[place] for place in of_named or groups}
    whole = {place: roles for place, roles in groups.items() if roles.keys() | own.keys() >= set(NEEDED)}
    if len(whole) > 1 and not own.keys() >= set(NEEDED):
        names = ", ".join(repr(place) for place in list(whole)[:12]) + (" …" if len(whole) > 12 else "")
        hint = f"pick one: --tensor prefix={next(iter(whole))}"
        raise CandidateError(f"{target} holds {len(whole)} attentions: {names}", hint=hint)
    if not whole and not own.keys() >= set(NEEDED):
        raise _lacking(target, contents, groups, own)
    place = next(iter(whole), "")
    return place, {role: _single(target, role, found) for role, found in whole.get(place, {}).items()} | own


def _settled(roles: Mapping[str, list[str]], own: Mapping[str, str]) -> dict[str, list[str]]:
    """The roles of one layer, what was given left out; ``attn`` and ``context`` stand in for what isn't there."""
    found = {role: [name for name in names if name not in own.values()] for role, names in roles.items()}
    found = {role: names for role, names in found.items() if names and role not in own}
    for stand_in in ("context", "attn"):
        if "output" not in found and "output" not in own and stand_in in found:
            found["output"] = found.pop(stand_in)
    if "attn" in found:
        names = found.pop("attn")
        found.setdefault("weights", names)
    return found


def _within(target: str, groups: dict[str, dict[str, list[str]]], prefix: str) -> dict[str, dict[str, list[str]]]:
    wanted = prefix.strip("._-/: ")
    found = {place: roles for place, roles in groups.items() if place == wanted}
    found = found or {place: roles for place, roles in groups.items() if place.startswith((f"{wanted}.", f"{wanted}/"))}
    if not found:
        known = ", ".join(repr(place) for place in list(groups)[:12])
        raise CandidateError(f"{target} holds no layer {prefix!r}", hint=f"known: {known}" if known else "")
    return found


def _single(target: str, role: str, names: Sequence[str]) -> str:
    if len(names) > 1:
        message = f"{target} holds several tensors that could be the {role}: {', '.join(names[:6])}"
        raise CandidateError(message, hint=f"pick one: --tensor {role}={names[0]}")
    return names[0]


def _lacking(
    target: str, contents: Contents, groups: Mapping[str, Mapping[str, list[str]]], own: Mapping[str, str]
) -> CandidateError:
    most = max(groups.values(), key=lambda roles: len(set(NEEDED) & roles.keys()), default={})
    missing = [role for role in NEEDED if role not in most and role not in own]
    listed = ", ".join(list(contents)[:10]) + (" …" if len(contents) > 10 else "")
    message = f"{target} holds no tensor that is called like {' or '.join(missing)}; it holds {listed}"
    spare = [name for name in contents if name not in own.values() and [name] not in most.values()]
    example = spare[0] if spare else "NAME"
    return CandidateError(message, hint=f"say which it is: --tensor {missing[0]}={example}")


def read_tensor(role: str, name: str, contents: Contents) -> Tensor:
    """The tensor of this name, its floating numbers as float64.

    Raises:
        CandidateError: it holds nothing, or what its role can't be.
    """
    stored = contents[name]
    if 0 in stored.shape:
        message = f"{name} has shape {stored.shape}: there are no numbers in it"
        raise CandidateError(message, hint=f"another tensor: --tensor {role}=NAME")
    whole = stored.dtype == "bool" or stored.dtype.startswith(("int", "uint"))
    if stored.dtype not in FLOATS and not (whole and role in WHOLE):
        kind = "complex" if stored.dtype.startswith("complex") else "whole numbers" if whole else stored.dtype
        allowed = "floating numbers" + (", whole ones or booleans" if role in WHOLE else "")
        hint = "store real numbers: float32 will do" if kind == "complex" else "cast it before it is written: float32"
        raise CandidateError(f"{name}, the {role}, holds {kind} ({stored.dtype}), and should hold {allowed}", hint=hint)
    array = stored.read()
    return Tensor(name, stored.dtype, array if whole else array.astype(np.float64))
