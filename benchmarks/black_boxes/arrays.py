"""Drawn boxes in plain NumPy, as one would write them for a course: matrices, a mask of minus infinities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.black_boxes.drawn import Drawn, Rotation, Visible

Attention = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def in_numpy(drawn: Drawn, dtype: str | None = None) -> Attention:
    """``f(query, key, value)`` on arrays. It answers in ``dtype``, or in that of the query."""

    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        query, key, value = (x.astype(dtype or query.dtype) for x in (query, key, value))
        if drawn.layout == "BTHD":
            query, key, value = (x.transpose(0, 2, 1, 3) for x in (query, key, value))
        query_len, key_len = query.shape[2], key.shape[2]
        copies = drawn.num_heads // drawn.num_kv_heads
        key, value = (_for_every_head(x, copies, drawn.tiled) for x in (key, value))
        rows = np.arange(query_len) + drawn.first_position(query_len, key_len)
        columns = np.arange(key_len)
        if drawn.rope:
            query, key = _rotated(query, rows, drawn.rope), _rotated(key, columns, drawn.rope)
        scores = query @ key.swapaxes(-1, -2) * query.dtype.type(drawn.scale)
        if drawn.softcap:
            scores = np.tanh(scores / query.dtype.type(drawn.softcap)) * query.dtype.type(drawn.softcap)
        scores = scores + _added(drawn, rows, columns).astype(query.dtype)
        hidden_score = -1e30 if drawn.empty_row == "uniform" else -np.inf
        scores = np.where(_keep(drawn.visible, rows, columns), scores, query.dtype.type(hidden_score))
        weights = _softmax(drawn, scores).astype(query.dtype)
        if drawn.dropout_p:
            weights = weights * (np.random.random(weights.shape) >= drawn.dropout_p) / (1 - drawn.dropout_p)  # noqa: NPY002 - as left on by mistake
        return _arranged(drawn, (weights @ value).astype(query.dtype))

    return attention


def _for_every_head(x: np.ndarray, copies: int, tiled: bool) -> np.ndarray:
    return np.tile(x, (1, copies, 1, 1)) if tiled else np.repeat(x, copies, axis=1)


def _rotated(x: np.ndarray, positions: np.ndarray, rope: Rotation) -> np.ndarray:
    pairs = rope.dims // 2
    angles = np.outer(positions, rope.base ** (-np.arange(pairs) / pairs)) / rope.factor
    turns = np.exp(1j * angles)
    turning, rest = x[..., : rope.dims], x[..., rope.dims :]
    if rope.pairing == "halves":
        turned = (turning[..., :pairs] + 1j * turning[..., pairs:]) * turns
        parts = [turned.real, turned.imag]
    else:
        turned = (turning[..., 0::2] + 1j * turning[..., 1::2]) * turns
        parts = [np.stack([turned.real, turned.imag], axis=-1).reshape(turning.shape)]
    return np.concatenate([*parts, rest], axis=-1).astype(x.dtype)


def _added(drawn: Drawn, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    ahead = columns[None, :] - rows[:, None]
    added = np.zeros((drawn.num_heads, *ahead.shape))
    if drawn.slopes:
        added += np.array(drawn.slopes)[:, None, None] * (ahead if drawn.signed else -np.abs(ahead))
    if drawn.distance_bias is not None:
        reach = drawn.distance_bias.shape[1] // 2
        added += drawn.distance_bias[:, np.clip(ahead, -reach, reach) + reach]
    if drawn.place_bias is not None:
        added += drawn.place_bias[:, : len(rows), : len(columns)]
    return added


def _keep(visible: Visible, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    query, key = rows[:, None], columns[None, :]
    keep = np.ones((len(rows), len(columns)), dtype=bool)
    if visible.causal:
        keep &= key <= query
    if visible.window:
        keep &= (query - key < visible.window) & (key - query < visible.window)
    if visible.starts:
        keep &= np.digitize(query, visible.starts) == np.digitize(key, visible.starts)
    if visible.step:
        keep &= (query - key) % visible.step == 0
    if visible.pairs is not None:
        keep &= visible.pairs[: len(rows), : len(columns)]
    if visible.prefix:
        keep = (keep & visible.causal) | (key < visible.prefix)
    return keep


def _softmax(drawn: Drawn, scores: np.ndarray) -> np.ndarray:
    if drawn.half_inside:
        scores = np.maximum(scores, -6e4).astype(np.float16) if drawn.empty_row == "uniform" else scores.astype("f2")
    if drawn.sinks:
        sinks = np.broadcast_to(np.array(drawn.sinks)[:, None, None], (*scores.shape[:-1], 1)).astype(scores.dtype)
        scores = np.concatenate([scores, sinks], axis=-1)
    power = np.exp2 if drawn.softmax_base == "2" else np.exp
    with np.errstate(invalid="ignore", over="ignore"):
        weights = power(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
    if drawn.empty_row == "zero":
        weights = np.nan_to_num(weights, nan=0.0)
    return weights[..., :-1] if drawn.sinks else weights


def _arranged(drawn: Drawn, context: np.ndarray) -> np.ndarray:
    if drawn.head_order:
        context = context[:, list(drawn.head_order)]
    if drawn.channel_order is not None:
        context = np.take_along_axis(context, drawn.channel_order[None, :, None, :], axis=-1)
    return context.transpose(0, 2, 1, 3) if drawn.layout == "BTHD" else context
