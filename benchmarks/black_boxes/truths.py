"""An answer of ``qkv.identify`` beside the description that the box was built from, option by option."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.black_boxes.drawn import Drawn
from benchmarks.black_boxes.levels import LENGTHS, by_distance, by_place, level, linear
from benchmarks.black_boxes.rows import seen
from qkv.masks import Positions
from qkv.report.identity import Identity

OPEN = object()
"""What the box's outputs can't tell."""


@dataclass(frozen=True)
class Answer:
    """One option of one box.

    Attributes:
        option: its name.
        drawn: whether the box has it at all; without it, a claim of it would be false.
        verdict: ``right``, ``wrong`` or ``undecided``.
        expected: what the box computes.
        got: what was said.
    """

    option: str
    drawn: bool
    verdict: str
    expected: Any
    got: Any


def answers(drawn: Drawn, identity: Identity) -> Iterator[Answer]:
    """What was said of every option that the box's outputs can tell."""
    for option, (truth, claim, words) in OPTIONS.items():
        expected = truth(drawn)
        if expected is OPEN:
            continue
        got = claim(drawn, identity) if identity.spec else None
        right = identity.spec is not None and same(expected, got, _tolerance(drawn))
        open_yet = identity.spec is None or any(word in line for line in identity.undecided for word in words)
        verdict = "right" if right else "undecided" if open_yet else "wrong"
        yield Answer(option, expected is not None, verdict, expected, got)


def same(expected: Any, got: Any, tolerance: float) -> bool:
    """Whether two values are the same; numbers to a share of the largest of them, or of one where all are zero."""
    if expected is None or got is None or isinstance(expected, str):
        return bool(expected is got or (isinstance(expected, str) and expected == got))
    one, other = np.asarray(expected, dtype=float), np.asarray(got, dtype=float)
    if one.shape != other.shape:
        return False
    largest = np.abs(one[np.isfinite(one)]).max(initial=0.0) or 1.0
    return bool(np.allclose(other, one, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def _tolerance(drawn: Drawn) -> float:
    """Four digits, where the box has as many."""
    return 0.1 if drawn.dropout_p else 2e-2 if drawn.half_inside else 1e-4


def _factor(drawn: Drawn) -> float:
    """What scores to the base 2 are worth to the base e: no output can tell the two apart."""
    return math.log(2.0) if drawn.softmax_base == "2" else 1.0


def _heads_of(drawn: Drawn) -> list[int]:
    """The head that stands in each place of the output."""
    return list(drawn.head_order or range(drawn.num_heads))


def _in_order(drawn: Drawn, numbers: Any) -> Any:
    return None if numbers is None else [numbers[head] * _factor(drawn) for head in _heads_of(drawn)]


def _each_head(identity: Identity, name: str, otherwise: list[Any]) -> list[Any]:
    rows = identity.per_head or [{}] * len(otherwise)
    return [row.get(name, other) for row, other in zip(rows, otherwise, strict=False)]


# --- heads ------------------------------------------------------------------------------------------------------------


def _kv_heads(drawn: Drawn) -> Any:
    group_size = drawn.num_heads // drawn.num_kv_heads
    return [head % drawn.num_kv_heads if drawn.tiled else head // group_size for head in _heads_of(drawn)]


def _said_kv_heads(drawn: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    assert spec is not None
    return _each_head(identity, "kv_head", [head // spec.group_size for head in range(drawn.num_heads)])


def _said_query_heads(drawn: Drawn, identity: Identity) -> Any:
    heads = list(range(drawn.num_heads))
    said = _each_head(identity, "query_head", heads)
    return None if said == heads else said


def _query_heads(drawn: Drawn) -> Any:
    moved = drawn.head_order is not None and list(drawn.head_order) != list(range(drawn.num_heads))
    return drawn.head_order if moved else None


def _said_channels(drawn: Drawn, identity: Identity) -> Any:
    plain = list(range(drawn.value_dim))
    said = _each_head(identity, "value_channels", [plain] * drawn.num_heads)
    return None if all(row == plain for row in said) else said


# --- scores -----------------------------------------------------------------------------------------------------------


def _said_scales(drawn: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    assert spec is not None
    turned = spec.rope.attention_factor**2 if spec.rope and spec.rope.rotary_dims(drawn.head_dim) else 1.0
    return _each_head(identity, "scale", [spec.scale_for(drawn.head_dim) * turned] * drawn.num_heads)


def _said_slopes(drawn: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    assert spec is not None
    if spec.alibi is None:
        return None
    return _each_head(identity, "alibi_slope", spec.alibi.slopes_for(drawn.num_heads))


def _sign(drawn: Drawn) -> Any:
    """Whether keys ahead of a query are rewarded, where any are seen."""
    visible = drawn.visible
    return OPEN if not drawn.slopes or visible.causal else ("signed" if drawn.signed else "unsigned")


def _said_sign(_: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    return None if spec is None or spec.alibi is None else "signed" if spec.alibi.signed else "unsigned"


def _distance_bias(drawn: Drawn) -> Any:
    if drawn.distance_bias is None:
        return None
    bias = by_distance(drawn, drawn.distance_bias[_heads_of(drawn)] * _factor(drawn), _firsts(drawn))
    return bias - bias.mean(axis=1, keepdims=True)


def _said_distance_bias(drawn: Drawn, identity: Identity) -> Any:
    if identity.spec is None or identity.spec.relative_bias is None:
        return None
    bias = by_distance(drawn, identity.spec.relative_bias.table, _said_firsts(drawn, identity))
    return bias - bias.mean(axis=1, keepdims=True)


def _place_bias(drawn: Drawn) -> Any:
    return None if drawn.place_bias is None else by_place(drawn, drawn.place_bias[_heads_of(drawn)] * _factor(drawn))


def _said_place_bias(drawn: Drawn, identity: Identity) -> Any:
    matrices = _each_head(identity, "bias_by_position", [None] * drawn.num_heads)
    return None if any(matrix is None for matrix in matrices) else by_place(drawn, matrices)


def _sinks(drawn: Drawn) -> Any:
    """The sinks of each head at each pair of lengths, less the level of what is added to all scores."""
    if drawn.sinks is None:
        return None
    table, matrices = (
        None if bias is None else bias[_heads_of(drawn)] * _factor(drawn)
        for bias in (drawn.distance_bias, drawn.place_bias)
    )
    sinks = np.array(_in_order(drawn, drawn.sinks)) - level(drawn, table, matrices, _firsts(drawn))
    return _with_slopes(sinks, drawn, _in_order(drawn, drawn.slopes), _firsts(drawn))


def _said_sinks(drawn: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    if spec is None or not spec.sinks:
        return None
    matrices = _each_head(identity, "bias_by_position", [None] * drawn.num_heads)
    table = spec.relative_bias.table if spec.relative_bias else None
    firsts = _said_firsts(drawn, identity)
    said = np.array(_each_head(identity, "sink", [math.nan] * drawn.num_heads))
    sinks = said - level(drawn, table, None if matrices[0] is None else matrices, firsts)
    return _with_slopes(sinks, drawn, _said_slopes(drawn, identity), firsts)


def _with_slopes(sinks: Any, drawn: Drawn, slopes: Any, firsts: Any) -> Any:
    """``(head, lengths)``: the sinks beside scores that alibi raises by the whole row."""
    raised = np.array(slopes)[:, None] * firsts if slopes is not None and linear(drawn) else 0.0
    return sinks[:, None] + raised + np.zeros(len(LENGTHS))


# --- masks and positions ----------------------------------------------------------------------------------------------


def _sets(drawn: Drawn) -> Any:
    return np.concatenate([seen(drawn, *lengths).ravel() for lengths in LENGTHS])


def _said_sets(drawn: Drawn, identity: Identity) -> Any:
    spec = identity.spec
    assert spec is not None
    if drawn.visible.pairs is not None and identity.pictures:
        return _sets(drawn)  # no rule is behind it, and a picture is all that can be said
    found = []
    for query_len, key_len in LENGTHS:
        rows = np.arange(query_len) + spec.offset_for(query_len, key_len)
        columns = np.arange(key_len)
        documents = (_document(identity, rows)[None, None, :, None], _document(identity, columns)[None, None, None, :])
        at = Positions(rows[None, None, :, None], columns[None, None, None, :], *documents)
        found.append(np.broadcast_to(spec.mask.allows(at), (1, 1, query_len, key_len)).ravel())
    return np.concatenate(found)


def _document(identity: Identity, positions: Any) -> Any:
    """The document of each position, by the sentence that tells their lengths; all are in one without it."""
    told = [re.search("documents of ([0-9, ]+)", line) for line in identity.readings]
    lengths = [int(length) for match in told if match for length in match[1].split(",")]
    return np.digitize(positions, np.cumsum(lengths)[:-1]) if lengths else 0 * positions


def _offsets(drawn: Drawn) -> Any:
    """The first query's position at each pair of lengths, where it shows: in rope, or where alibi's distance is folded.

    A bias by distance is compared with it, since a table that is moved is the same.
    """
    return _firsts(drawn) if drawn.rope or (drawn.slopes and not linear(drawn)) else OPEN


def _firsts(drawn: Drawn) -> list[int]:
    return [drawn.first_position(*lengths) for lengths in LENGTHS]


def _said_firsts(_: Drawn, identity: Identity) -> list[int]:
    spec = identity.spec
    assert spec is not None
    return [spec.offset_for(*lengths) for lengths in LENGTHS]


def _empty_row(drawn: Drawn) -> Any:
    empty = any((~seen(drawn, *lengths).any(axis=-1)).any() for lengths in LENGTHS)
    return drawn.empty_row if empty else OPEN


def _pairing(drawn: Drawn) -> Any:
    rope = drawn.rope
    return None if rope is None else OPEN if rope.dims == 2 else rope.pairing


def _base(drawn: Drawn) -> Any:
    rope = drawn.rope
    return None if rope is None else OPEN if rope.dims == 2 else rope.base


def _of_rope(read: Callable[[Any, Drawn], Any]) -> Callable[[Drawn, Identity], Any]:
    return lambda drawn, identity: read(identity.spec.rope, drawn) if identity.spec and identity.spec.rope else None


def _linear_factor(rope: Any, _: Drawn) -> float:
    return float(rope.scaling.factor) if rope.scaling else 1.0


# --- what can only be said --------------------------------------------------------------------------------------------


def _mentions(*words: str) -> Callable[[Drawn, Identity], Any]:
    def said(_: Drawn, identity: Identity) -> Any:
        lines = [*identity.readings, *identity.undecided, *identity.pictures, identity.why]
        return "said" if any(word in line for line in lines for word in words) else None

    return said


def _said_dropout(_: Drawn, identity: Identity) -> Any:
    found = identity.estimates.get("dropout_p")
    return None if found is None else found.value


OPTIONS: dict[str, tuple[Callable[[Drawn], Any], Callable[[Drawn, Identity], Any], tuple[str, ...]]] = {
    "kv heads": (_kv_heads, _said_kv_heads, ("kv", "key/value")),
    "head order": (_query_heads, _said_query_heads, ("order of heads", "query head")),
    "value channels": (lambda drawn: drawn.channel_order, _said_channels, ("channel",)),
    "scale": (lambda drawn: [drawn.scale * _factor(drawn)] * drawn.num_heads, _said_scales, ("scale",)),
    "softcap": (
        lambda drawn: drawn.softcap and drawn.softcap * _factor(drawn),
        lambda _, identity: identity.spec.softcap if identity.spec else None,
        ("softcap",),
    ),
    "alibi slopes": (lambda drawn: _in_order(drawn, drawn.slopes), _said_slopes, ("alibi",)),
    "alibi sign": (_sign, _said_sign, ("alibi",)),
    "bias by distance": (_distance_bias, _said_distance_bias, ("bias",)),
    "bias by place": (_place_bias, _said_place_bias, ("bias",)),
    "sinks": (_sinks, _said_sinks, ("sink",)),
    "mask": (_sets, _said_sets, ("mask", "may attend", "sees")),
    "offset": (_offsets, _said_firsts, ("offset", "corner", "position of the first query")),
    "empty row": (_empty_row, lambda _, identity: identity.spec and identity.spec.empty_row, ("empty",)),
    "rope pairing": (_pairing, _of_rope(lambda rope, _: rope.pairing), ("rope",)),
    "rope dims": (
        lambda drawn: drawn.rope and drawn.rope.dims,
        _of_rope(lambda rope, drawn: rope.rotary_dims(drawn.head_dim)),
        ("rope",),
    ),
    "rope base": (_base, _of_rope(lambda rope, _: rope.base), ("rope",)),
    "rope factor": (lambda drawn: drawn.rope and drawn.rope.factor, _of_rope(_linear_factor), ("rope",)),
    "float16 inside": (
        lambda drawn: "said" if drawn.half_inside else None,
        _mentions("float16", "half precision"),
        ("float16",),
    ),
    "dropout": (lambda drawn: drawn.dropout_p or None, _said_dropout, ("dropout",)),
}  # fmt: skip
"""Each option: what the box has, what was said, and the words by which an undecided sentence names it."""
