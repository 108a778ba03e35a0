"""The output's projection: by its name, or by what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from qkv.adapters.names import bare
from qkv.adapters.projections.found import Found, Unit
from qkv.adapters.projections.scope import Scope, fixed_axes
from qkv.adapters.projections.sizes import Known

_MOST = 3
"""Matrices of unknown names that are tried as the output's."""


def with_outputs(scope: Scope, found: Found, known: Known, taken: Collection[str] = ()) -> list[Scope]:
    """The scope with its output's projection; several where more than one matrix may be it, the likeliest first.

    One with a name of the field stands beside q, k and v, or in a module around them. A layer whose name says nothing
    is taken where it stands beside them and takes just as many channels as the heads give.

    Args:
        scope: q, k and v.
        found: all arrays.
        known: the sizes that are known.
        taken: arrays that the user has named as something else.
    """
    if "out" in scope.units:
        return [scope]
    taken = {*taken, *scope.names}
    exact = [unit for unit in found.units if unit.role == "out" and unit.weight not in taken]
    loose = [unit for unit in found.units if unit.role == "loose" and unit.weight not in taken]
    loose = [unit for unit in loose if _takes_the_context(unit, scope, known)]
    named = _beside(exact, loose, scope.at) or _around(exact, loose, scope.at)
    if named:
        return [replace(scope, units={**scope.units, "out": (named,)})]
    fitting = _unnamed(found, scope, known, taken)
    return [_with_unnamed(scope, unit, alone=len(fitting) == 1) for unit in fitting] or [scope]


def _beside(exact: list[Unit], loose: list[Unit], at: tuple[str, ...]) -> Unit | None:
    return next((unit for unit in [*exact, *loose] if unit.scope == at), None)


def _around(exact: list[Unit], loose: list[Unit], at: tuple[str, ...]) -> Unit | None:
    for depth in range(len(at) - 1, -1, -1):
        for unit in [*exact, *loose]:
            inside = [bare(name) for name in unit.scope[depth:]]
            if unit.scope[:depth] == at[:depth] and (inside in (["output"], ["out"]) or (unit in exact and not inside)):
                return unit
    return None


def _unnamed(found: Found, scope: Scope, known: Known, taken: Collection[str]) -> list[Unit]:
    """The layers beside q, k and v that can be the output's; those that give a token's channels first."""
    beside = [unit for unit in found.others if unit.scope == scope.at and unit.weight not in taken]
    # Several of one name are heads, or the layers of a network.
    count = Counter(unit.stem.partition(".")[0] for unit in beside)
    fitting = [
        unit
        for unit in beside
        if fixed_axes(unit) and count[unit.stem.partition(".")[0]] == 1 and _takes_the_context(unit, scope, known)
    ]
    first = next((size for role in scope.units if "q" in role and (size := scope.size(role))), None)
    embed = None if first is None else first[1]
    return sorted(fitting, key=lambda unit: (_size(unit) or (0, 0))[0] != embed)[:_MOST]


def _size(unit: Unit) -> tuple[int, int] | None:
    """Channels that an output's projection gives and takes; None where its axes can be read in several ways."""
    return Scope((), {"out": (unit,)}, {}).size("out")


def _with_unnamed(scope: Scope, unit: Unit, alone: bool) -> Scope:
    name = unit.weight.removesuffix(".weight")
    why = f"{name} is taken for the output's, since it takes the channels that the heads give"
    why += "" if alone else ", as others do"
    return replace(
        scope, units={**scope.units, "out": (unit,)}, note=_joined(scope.note, why), sure=scope.sure and alone
    )


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _takes_the_context(unit: Unit, scope: Scope, known: Known) -> bool:
    """Whether the layer can take what the heads give: as many channels as the values have, repeated for the queries."""
    size = _size(unit)
    return size is None or can_be_context(size[1], scope, known)


def can_be_context(width: int, scope: Scope, known: Known) -> bool:
    """Whether all heads' results can have that many channels."""
    sizes = {role: scope.size(role) for role in scope.units if role != "out"}
    rows = {role: size[0] for role, size in sizes.items() if size}
    if len(rows) < len(sizes):
        return True
    fused = scope.fused
    if fused and len(fused) == 3:
        return _cuts(rows[fused], width, known)
    if fused and set(fused) == {"k", "v"}:
        return width == rows.get("q", width) or bool(known.spec.value_dim)
    if fused or "q" not in rows:
        return True
    query, key = rows["q"], rows.get("k", rows["q"])
    value = rows.get("v", key)
    return width in (value * query // key if not query % key else value, *known.grouped(value))


def _cuts(rows: int, width: int, known: Known) -> bool:
    """Whether a fused array of that many rows can have a query of that width: as thirds, or with fewer k and v."""
    if rows == 3 * width or known.spec.value_dim:
        return True
    head_dim, other = width // known.num_heads, (rows - width) // 2
    even = not width % known.num_heads and width + 2 * other == rows
    return even and 0 < other < width and not other % head_dim
