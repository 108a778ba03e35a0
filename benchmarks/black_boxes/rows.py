"""The drawn box as a loop over single scores, slow and plain: what the builders are held against."""

from __future__ import annotations

import bisect
import math
from typing import Any

import numpy as np

from benchmarks.black_boxes.drawn import Drawn, Rotation, Visible


def may_attend(visible: Visible, query_at: int, key_at: int, row: int) -> bool:
    """Whether the query at a position, in a row of the score matrix, sees the key at a position."""
    distance = query_at - key_at
    hidden = (visible.causal and distance < 0) or (visible.window is not None and abs(distance) >= visible.window)
    if visible.starts:
        document = bisect.bisect_right(visible.starts, query_at)
        hidden = hidden or document != bisect.bisect_right(visible.starts, key_at)
    if visible.step is not None:
        hidden = hidden or distance % visible.step != 0
    if visible.pairs is not None:
        hidden = hidden or not visible.pairs[row, key_at]
    if visible.prefix is not None:
        rest = visible.causal and not hidden
        hidden = not (rest or key_at < visible.prefix)
    return not hidden


def seen(drawn: Drawn, query_len: int, key_len: int) -> Any:
    """``(query, key)`` booleans: who may attend to whom."""
    first = drawn.first_position(query_len, key_len)
    return np.array(
        [[may_attend(drawn.visible, first + row, key, row) for key in range(key_len)] for row in range(query_len)]
    )


def by_rows(drawn: Drawn, query: Any, key: Any, value: Any) -> Any:
    """The output of a box without dropout, in float64, computed one score at a time."""
    query, key, value = (np.asarray(array, dtype=np.float64) for array in (query, key, value))
    if drawn.layout == "BTHD":
        query, key, value = (array.swapaxes(1, 2) for array in (query, key, value))
    batch, heads, query_len = query.shape[:3]
    output = np.empty((batch, heads, query_len, drawn.value_dim))
    for index in np.ndindex(batch, heads, query_len):
        sequence, place, row = index
        head = drawn.head_order[place] if drawn.head_order else place
        kv_head = head % drawn.num_kv_heads if drawn.tiled else head * drawn.num_kv_heads // drawn.num_heads
        scores = _scores(drawn, head, row, query[sequence, head], key[sequence, kv_head])
        context = _weights(drawn, head, scores) @ value[sequence, kv_head]
        output[index] = context if drawn.channel_order is None else context[drawn.channel_order[place]]
    return output.swapaxes(1, 2) if drawn.layout == "BTHD" else output


def _scores(drawn: Drawn, head: int, row: int, queries: Any, keys: Any) -> list[float]:
    first = drawn.first_position(len(queries), len(keys))
    query = _turned(drawn.rope, queries[row], first + row)
    scores = []
    for at, key in enumerate(keys):
        score = drawn.scale * float(query @ _turned(drawn.rope, key, at))
        if drawn.softcap:
            score = drawn.softcap * math.tanh(score / drawn.softcap)
        distance = at - (first + row)
        if drawn.slopes:
            score += drawn.slopes[head] * (distance if drawn.signed else -abs(distance))
        if drawn.distance_bias is not None:
            reach = drawn.distance_bias.shape[1] // 2
            score += drawn.distance_bias[head, min(max(distance, -reach), reach) + reach]
        if drawn.place_bias is not None:
            score += drawn.place_bias[head, row, at]
        scores.append(score if may_attend(drawn.visible, first + row, at, row) else -math.inf)
    return scores


def _weights(drawn: Drawn, head: int, scores: list[float]) -> Any:
    base = 2.0 if drawn.softmax_base == "2" else math.e
    shares = [base**score for score in scores]
    total = sum(shares) + (base ** drawn.sinks[head] if drawn.sinks else 0.0)
    if total == 0.0:
        return np.full(len(scores), {"zero": 0.0, "nan": math.nan, "uniform": 1 / len(scores)}[drawn.empty_row])
    return np.array(shares) / total


def _turned(rope: Rotation | None, vector: Any, position: int) -> Any:
    if rope is None:
        return vector
    turned = vector.copy()
    for pair in range(rope.dims // 2):
        one, two = (pair, pair + rope.dims // 2) if rope.pairing == "halves" else (2 * pair, 2 * pair + 1)
        angle = position / rope.factor * rope.base ** (-2 * pair / rope.dims)
        turned[one] = vector[one] * math.cos(angle) - vector[two] * math.sin(angle)
        turned[two] = vector[two] * math.cos(angle) + vector[one] * math.sin(angle)
    return turned
