"""Every way to read a candidate's arrays as projections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.adapters.messages import ArrayFacts, Facts
from qkv.adapters.names import projection_role
from qkv.adapters.projections.axes import axes_choices
from qkv.adapters.projections.found import Found
from qkv.adapters.projections.fused import layouts_of
from qkv.adapters.projections.given import array_named, with_given
from qkv.adapters.projections.norm_roles import norm_roles
from qkv.adapters.projections.norms import norms_of
from qkv.adapters.projections.outputs import with_outputs
from qkv.adapters.projections.paths import ArrayPath
from qkv.adapters.projections.pieces import Piece, ProjectionReading
from qkv.adapters.projections.scope import Scope
from qkv.adapters.projections.scopes import scopes_of
from qkv.adapters.projections.sizes import Known
from qkv.errors import CandidateError
from qkv.spec import AttentionSpec


def readings_of(
    facts: Facts,
    spec: AttentionSpec,
    given: Mapping[str, str] | None = None,
    *,
    num_heads: int | None = None,
) -> list[ProjectionReading]:
    """Every way to read the candidate's arrays, the likeliest first. Empty where it has learned nothing.

    Args:
        facts: what the candidate says of itself.
        spec: what it is meant to do; its sizes tell layouts apart.
        given: arrays named by the user: ``{"q_proj": "W_query.weight", "v_proj": "qkv.weight[96:144]"}``.
        num_heads: the heads that its class was built with; the spec's count where it names more than one.

    Raises:
        CandidateError: a given name is not there, no projection is recognised, there are two attentions, or the arrays
            have no shape before the first call.
    """
    given = given or {}
    arrays = {name: one for name, one in facts.arrays.items() if one.learned} or dict(facts.arrays)
    if not arrays and not given:
        return []
    _check_shapes(arrays, facts)
    found = Found.among(arrays, norm_roles(facts))
    readings = [
        reading
        for scope in _complete_scopes(found, facts, spec, given, num_heads)
        for reading in _readings_in(scope, found, facts, Known.of(facts, spec, scope.at, num_heads))
    ]
    readings = _distinct(readings)
    certain = len(readings) == 1
    return [replace(reading, certain=reading.certain and certain) for reading in readings]


def _check_shapes(arrays: Mapping[str, ArrayFacts], facts: Facts) -> None:
    lazy = next((name for name, one in arrays.items() if not one.shape and one.owner.startswith("Lazy")), None)
    if lazy:
        raise CandidateError(
            f"{lazy} of {facts.class_name} has no shape before the first call",
            hint="write nn.Linear(in_features, out_features) for nn.LazyLinear(out_features), "
            "or hand over an instance that has been called once",
        )


def _complete_scopes(
    found: Found, facts: Facts, spec: AttentionSpec, given: Mapping[str, str], num_heads: int | None
) -> Iterator[Scope]:
    taken = [array_named(expression) for expression in given.values()]
    says_output = any(projection_role(key.removesuffix(".weight")) == "out" for key in given)
    for scope in scopes_of(found, facts, given):
        named = with_given(scope, found, facts, given)
        known = Known.of(facts, spec, named.at, num_heads)
        yield from [named] if says_output else with_outputs(named, found, known, taken)


def _readings_in(scope: Scope, found: Found, facts: Facts, known: Known) -> Iterator[ProjectionReading]:
    q_norm, k_norm = norms_of(found, scope, facts)
    for axes in axes_choices(scope, known):
        for reading in _rows_choices(scope, axes, known, facts):
            yield replace(
                reading,
                certain=scope.sure and reading.v is not reading.k,
                q_norm=q_norm,
                k_norm=k_norm,
                sink=found.sinks.get(scope.at),
                unassigned=_unassigned(scope, found, reading),
            )


def _unassigned(scope: Scope, found: Found, reading: ProjectionReading) -> tuple[str, ...]:
    """The matrices in and beneath the attention's place that the reading makes no use of."""
    depth = len(scope.at)
    inside = [unit.weight for unit in found.in_order() if unit.scope[:depth] == scope.at]
    return tuple(name for name in inside if name not in reading.names)


def _rows_choices(scope: Scope, axes: Mapping[str, str], known: Known, facts: Facts) -> Iterator[ProjectionReading]:
    """The readings of a scope whose axes are settled: several where a fused array can be cut in several ways."""
    pieces = {role: scope.piece(role, axes[role]) for role in scope.units}
    fused = [role for role in pieces if len(role) > 1 and role != "out"]
    if not fused:
        yield _reading(scope, _with_shared_bias(scope, pieces), _apart_in_words(pieces))
        return
    role = fused[0]
    for layout in layouts_of(role, pieces, known, facts):
        cut = {letter: _cut_out(scope, pieces[role], letter, rows) for letter, rows in layout.rows.items()}
        whole = pieces[role] if len(role) == 3 else None
        yield _reading(scope, cut | {r: p for r, p in pieces.items() if r != role}, layout.words, whole)


def _cut_out(scope: Scope, piece: Piece, letter: str, rows: NDArray[np.intp]) -> Piece:
    """One projection's rows of a fused array; its bias is cut out likewise, or an array of its own (BEiT)."""
    own = scope.biases.get(letter)
    if own and not piece.biases:
        return replace(piece, rows=rows, biases=(own,))
    return replace(piece, rows=rows, bias_rows=rows)


def _with_shared_bias(scope: Scope, pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    """The pieces, where one bias serves projections that stand apart (torch's with a ``kdim``)."""
    shared = scope.biases.get("qkv")
    letters = [letter for letter in "qkv" if letter in pieces]
    if shared is None or any(pieces[letter].biases for letter in letters):
        return dict(pieces)
    ends = np.cumsum([pieces[letter].size[0] for letter in letters])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    with_bias = {
        letter: replace(pieces[letter], biases=(shared,), bias_rows=part)
        for letter, part in zip(letters, parts, strict=True)
    }
    return {**pieces, **with_bias}


def _reading(scope: Scope, pieces: Mapping[str, Piece], words: str, fused: Piece | None = None) -> ProjectionReading:
    pieces = dict(pieces)
    if "v" not in pieces:
        pieces["v"] = pieces["k"]
        words += "; there is no projection of the value, so the key's is taken"
    if pieces.get("out"):
        words += f"; the output's is {_name_in_words(pieces['out'])}"
    words += f"; {scope.note}" if scope.note else ""
    return ProjectionReading(
        words=words,
        certain=False,
        q=pieces["q"],
        k=pieces["k"],
        v=pieces["v"],
        out=pieces.get("out"),
        fused=fused,
        num_heads=_heads(scope, pieces["q"]),
    )


def _heads(scope: Scope, query: Piece) -> int | None:
    """The number of heads that the arrays themselves show: as a list of them, or by an axis."""
    listed = {len(scope.units[role]) for role in scope.units if role != "out"} - {1}
    if len(listed) == 1:
        return listed.pop()
    return query.shape[query.axes.index("h")] if "h" in query.axes else None


def _apart_in_words(pieces: Mapping[str, Piece]) -> str:
    letters = [letter for letter in "qkv" if letter in pieces]
    heads = {len(pieces[letter].weights) for letter in letters}
    names = ", ".join(_name_in_words(pieces[letter]) for letter in letters)
    beside = f", {heads.pop()} heads side by side" if heads != {1} else ""
    return f"{', '.join(letters)} are {names}{beside}"


def _name_in_words(piece: Piece) -> str:
    name = piece.weights[0].removesuffix(".weight")
    if len(piece.weights) > 1:
        return re.sub(r"\.\d+(?=\.|$)", ".*", name, count=1)
    raw = not ArrayPath.of(piece.weights[0]).leaf
    return f"{name} (used as {'x @ W' if piece.axes == 'eo' else 'x @ W.T'})" if raw and len(piece.axes) == 2 else name


def _distinct(readings: Sequence[ProjectionReading]) -> list[ProjectionReading]:
    """The readings without those that come to the same, as layouts do where there is one head."""
    kept: dict[Any, ProjectionReading] = {}
    for reading in readings:
        pieces = [reading.q, reading.k, reading.v, reading.out]
        key = tuple(
            piece and (piece.weights, piece.axes, None if piece.rows is None else piece.rows.tobytes())
            for piece in pieces
        )
        kept.setdefault(key, reading)
    return list(kept.values())
