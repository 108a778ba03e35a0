"""Which axis of an array is which, where the class that owns it leaves a choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from qkv.adapters.projections.found import Unit
from qkv.adapters.projections.scope import Scope, fixed_axes
from qkv.adapters.projections.sizes import Known
from qkv.errors import CandidateError

_ORDERS_OF_HEADS = ("hed", "hde", "ehd", "edh", "deh", "dhe")
_ORDERS_OF_OUTPUT = ("hdo", "hod", "ohd", "odh", "dho", "doh")


def axes_choices(scope: Scope, known: Known) -> list[dict[str, str]]:
    """For each role the letters of its axes: one choice, or several where raw matrices can be read either way."""
    fixed = {role: fixed_axes(units[0]) for role, units in scope.units.items()}
    free = [role for role, axes in fixed.items() if axes is None]
    choices = [{role: axes for role, axes in fixed.items() if axes is not None}]
    if not free:
        return choices
    flat = [role for role in free if len(scope.units[role][0].facts.shape) == 2]
    for role in free:
        if role not in flat:
            orders = _deep_axes(scope.units[role][0], known)
            choices = [choice | {role: order} for choice in choices for order in orders]
    if flat:
        choices = [choice | dict.fromkeys(flat, axes) for choice in choices for axes in _flat_order(scope, flat)]
    fitting = [choice for choice in choices if _consistent(scope, choice, free, known)]
    # Which axis of an output's is which is settled by the others; where it isn't, its sizes leave a choice of two.
    return _likeliest(fitting, scope) or choices


def _likeliest(choices: list[dict[str, str]], scope: Scope) -> list[dict[str, str]]:
    """The choices in which the output's projection gives tokens, where there are such."""
    if "out" not in scope.units or len(scope.units["out"][0].facts.shape) == 2:
        return choices
    first = next(role for role in scope.units if role != "out")
    tokens = [
        choice
        for choice in choices
        if scope.piece("out", choice["out"]).size[0] == scope.piece(first, choice[first]).size[1]
    ]
    return tokens or choices[:1]


def _flat_order(scope: Scope, flat: Sequence[str]) -> tuple[str, str]:
    """Raw matrices are mostly used as ``x @ W``; those called ``..._weight`` as ``F.linear(x, weight)``."""
    as_linear = all(scope.units[role][0].weight.endswith(("weight", "kernel")) for role in flat)
    return ("oe", "eo") if as_linear else ("eo", "oe")


def _consistent(scope: Scope, choice: Mapping[str, str], free: Sequence[str], known: Known) -> bool:
    """Whether the sizes agree: token channels with what is known and with each other, the output with the value."""
    sizes = {role: scope.piece(role, choice[role]).size for role in scope.units}
    inner = [sizes[role][1] for role in free if role != "out"]
    if known.embed and any(size not in known.embed for size in inner[:1]):
        return False
    if len(set(inner)) > 1:
        return False
    fused = next((role for role in free if len(role) == 3 and role != "out"), None)
    if fused and "c" not in choice[fused] and sizes[fused][0] <= sizes[fused][1]:
        return False
    if len({_heads(scope, role, choice[role]) for role in ("q", "out") if role in scope.units} - {None}) > 1:
        return False
    return "out" not in free or _takes_the_value(
        {role: size[0] for role, size in sizes.items()}, sizes["out"][1], known
    )


def _heads(scope: Scope, role: str, axes: str) -> int | None:
    """The size of an array's axis for the heads; None where it has none."""
    return scope.units[role][0].facts.shape[axes.index("h")] if "h" in axes else None


def _takes_the_value(rows: Mapping[str, int], width: int, known: Known) -> bool:
    value = next((rows[role] for role in ("v", "k", "q") if role in rows), None)
    if value is None:
        return True
    query, key = rows.get("q", value), rows.get("k", value)
    return width in (value, *known.grouped(value), *([] if query % key else [value * query // key]))


def _deep_axes(unit: Unit, known: Known) -> list[str]:
    """The letters of an array with an axis for the heads, or for q, k and v: the likeliest, or all of an output's."""
    shape = unit.facts.shape
    if unit.role == "out":
        orders: Iterable[str] = _ORDERS_OF_OUTPUT if len(shape) == 3 else ()
        known = replace(known, embed=frozenset())
    elif len(unit.role) == 3 and 3 in shape:
        letters = "ceo" if len(shape) == 3 else "chde"
        orders = sorted(("".join(order) for order in permutations(letters)), key=lambda order: order.index("c"))
    else:
        orders = _ORDERS_OF_HEADS if len(shape) == 3 else ()
    orders = [order for order in orders if len(order) == len(shape)]
    fitting = [order for order in orders if known.fits(order, shape)]
    if not orders:
        raise CandidateError(
            f"{unit.weight} has the shape {tuple(shape)}, and it is not known which axis is which",
            hint=f"--weights 'q_proj={unit.weight}[...]', with a slice of two axes",
        )
    return (fitting or orders) if unit.role == "out" else (fitting or orders)[:1]
