"""Which arrays make up the one attention among all that a candidate holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qkv.adapters.messages import Facts
from qkv.adapters.names import projection_role
from qkv.adapters.projections.by_order import by_order
from qkv.adapters.projections.found import Found, Unit
from qkv.adapters.projections.paths import ArrayPath
from qkv.adapters.projections.scope import Scope
from qkv.errors import CandidateError

_HINT = "--weights q_proj=NAME --weights k_proj=NAME --weights v_proj=NAME --weights out_proj=NAME"


def scopes_of(found: Found, facts: Facts, given: Mapping[str, str]) -> list[Scope]:
    """The one attention among the arrays, or where the user says that it is: without its output's projection.

    Several where no name tells which array is q, k or v.

    Raises:
        CandidateError: no projection is recognised, or there are two attentions.
    """
    named = [projection_role(name) for name in given]
    if {"q", "k"} <= set("".join(role for role in named if role and role != "out")):
        first = next(name for name, role in zip(given.values(), named, strict=True) if role and "q" in role)
        at = ArrayPath.of(first.partition("[")[0].removesuffix(".T")).scope
        return [Scope(at, {}, found.biases_at(at))]
    scopes: dict[tuple[str, ...], dict[str, list[Unit]]] = {}
    for unit in found.units:
        scopes.setdefault(unit.scope, {}).setdefault(unit.role, []).append(unit)
    whole = [at for at, roles in scopes.items() if _whole(roles)]
    if len(whole) > 1:
        raise CandidateError(
            f"{facts.class_name} holds {len(whole)} attentions: {', '.join('.'.join(at) or 'its own' for at in whole)}",
            hint="check one of them: hand it over by itself, or name its arrays: "
            f"--weights q_proj={_first_name(scopes[whole[0]])} and so on",
        )
    if not whole:
        unnamed = by_order(found, given)
        if not unnamed:
            raise CandidateError(_nothing_recognised(found, facts), hint=_HINT)
        return unnamed
    at = whole[0]
    units = {role: _one_or_heads(listed) for role, listed in scopes[at].items() if role not in ("out", "loose")}
    return [Scope(at, _settled(units), found.biases_at(at))]


def _whole(roles: Mapping[str, object]) -> bool:
    letters = set("".join(role for role in roles if role not in ("out", "loose")))
    return {"q", "k"} <= letters


def _first_name(roles: Mapping[str, Sequence[Unit]]) -> str:
    return next(iter(roles.values()))[0].weight


def _one_or_heads(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The units of one role: the heads of a list in order, or the first of several spellings."""
    heads = sorted((unit for unit in units if unit.place is not None), key=lambda unit: unit.place or 0)
    return tuple(heads) or (units[0],)


def _settled(units: dict[str, tuple[Unit, ...]]) -> dict[str, tuple[Unit, ...]]:
    """The units, each letter once. Beside a query of its own, an array for q, k and v is one for k and v (GPT-2)."""
    fused = next((role for role in units if len(role) == 3), None)
    if fused and "q" in units:
        kept = {role: listed for role, listed in units.items() if role != fused}
        return kept if {"k", "v"} <= set(units) else kept | {"kv": units[fused]}
    if fused:
        return {fused: units[fused]}
    return units


def _nothing_recognised(found: Found, facts: Facts) -> str:
    listed = ", ".join(f"{name} {tuple(one.shape)}" for name, one in list(found.arrays.items())[:24])
    more = ", ..." if len(found.arrays) > 24 else ""
    return f"no projections of query and key are recognised among the arrays of {facts.class_name}: {listed}{more}"
