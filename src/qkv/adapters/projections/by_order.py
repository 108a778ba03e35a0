"""Projections whose names say nothing: told apart by the order in which they are defined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from qkv.adapters.names import projection_role
from qkv.adapters.projections.found import QKVO, Found, Unit
from qkv.adapters.projections.scope import Scope, fixed_axes

Group = tuple[Unit, ...]
"""One layer, or the same layer of every head."""


def by_order(found: Found, given: Mapping[str, str]) -> list[Scope]:
    """Three or four layers of one scope as q, k, v and the output's, in every order, that of their definition first.

    Two layers, of which one gives three times what the other takes, or less where heads share key and value, are q, k
    and v in one and the output's. Empty where no scope has such layers, or more than one has.
    """
    said = {name: projection_role(key.removesuffix(".weight")) for key, name in given.items()}
    scopes: dict[tuple[str, ...], dict[str, list[Unit]]] = {}
    for unit in found.in_order():
        named = replace(unit, role=said.get(unit.weight) or unit.role)
        scopes.setdefault(unit.scope, {}).setdefault(unit.stem, []).append(named)
    each = [list(_readings(found, at, [tuple(group) for group in stems.values()])) for at, stems in scopes.items()]
    readable = [readings for readings in each if readings]
    return readable[0] if len(readable) == 1 else []


def _readings(found: Found, at: tuple[str, ...], groups: Sequence[Group]) -> Iterator[Scope]:
    if not _alike(groups):
        return
    fused = _fused(groups)
    if fused:
        yield Scope(at, fused, found.biases_at(at), _note(fused, "by its size"), sure=False)
    elif len(groups) in (3, 4):
        for units in _orders(groups):
            yield Scope(at, units, found.biases_at(at), _note(units, _by_order(groups, units)), sure=False)


def _alike(groups: Sequence[Group]) -> bool:
    """Whether all are layers of the same kind, or all plain matrices."""
    units = [unit for group in groups for unit in group]
    flat = all(len(unit.facts.shape) == 2 for unit in units)
    return flat and len({(fixed_axes(unit), unit.raw) for unit in units}) == 1


def _fused(groups: Sequence[Group]) -> dict[str, Group]:
    if len(groups) > 2 or any(fixed_axes(group[0]) is None for group in groups):
        return {}
    for whole in groups:
        rows, columns = _size(whole, "oe")
        others = [group for group in groups if group is not whole]
        back, width = _size(others[0], "oe") if others else (0, columns)
        if rows == 3 * width or (back == columns and _shares_heads(rows, width)):
            return {"qkv": whole} | ({"out": others[0]} if others else {})
    return {}


def _shares_heads(rows: int, width: int) -> bool:
    """Whether that many rows can be a query of that width, and a key and a value of fewer heads."""
    key = (rows - width) // 2
    return key > 0 and width + 2 * key == rows and not width % key


def _orders(groups: Sequence[Group]) -> Iterator[dict[str, Group]]:
    """Every way to give the groups their roles, those that their names say left as they are."""
    roles = QKVO[: len(groups)]
    said = {id(group): _role(group) for group in groups if _role(group)}
    if any(role not in roles for role in said.values()) or len(set(said.values())) < len(said):
        return
    if "out" in roles and "out" not in said.values():
        last = _odd(groups, said)
        said[id(last)] = "out"
    free = [group for group in groups if id(group) not in said]
    settled = {str(said[id(group)]): group for group in groups if id(group) in said}
    letters = [role for role in roles if role not in settled]
    for order in permutations(letters):
        units = settled | dict(zip(order, free, strict=True))
        if _fits(units):
            yield {role: units[role] for role in roles}


def _role(group: Group) -> str:
    return {"loose": "out"}.get(group[0].role, group[0].role)


def _odd(groups: Sequence[Group], said: Mapping[int, str]) -> Group:
    """The group that takes another number of channels than all others, which take tokens; else the last."""
    free = [group for group in groups if id(group) not in said]
    for group in free:
        others = {_size(other, "oe")[1] for other in groups if other is not group}
        if len(others) == 1 and _size(group, "oe")[1] not in others:
            return group
    return free[-1]


def _fits(units: Mapping[str, Group]) -> bool:
    """Whether some order of the axes gives sizes that go together."""
    fixed = fixed_axes(units["q"][0])
    return any(_goes_together(units, axes) for axes in ((fixed[:2],) if fixed else ("oe", "eo")))


def _goes_together(units: Mapping[str, Group], axes: str) -> bool:
    sizes = {role: _size(group, axes) for role, group in units.items()}
    (query, embed), (key, source), (value, other) = sizes["q"], sizes["k"], sizes["v"]
    if not embed == source == other or query % key:
        return False
    return "out" not in sizes or sizes["out"][1] == value * query // key


def _size(group: Group, axes: str) -> tuple[int, int]:
    """Channels that come out and go in; the heads of a list together."""
    first, second = group[0].facts.shape[:2]
    if (fixed_axes(group[0]) or axes).startswith("e"):
        first, second = second, first
    return first * len(group), second


def _by_order(groups: Sequence[Group], units: Mapping[str, Group]) -> str:
    places = [groups.index(units[letter]) for letter in "qkv"]
    return (
        "in the order they are defined in" if places == sorted(places) else "in another order than they're defined in"
    )


def _note(units: Mapping[str, Group], how: str) -> str:
    return f"no name says what is {', '.join(role for role in units if role != 'out')}: taken {how}"
