"""Drawn boxes in plain torch, as in a model's eager path: masked_fill, a softmax, one matrix product."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.black_boxes.drawn import Drawn, Rotation, Visible

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def in_torch(drawn: Drawn, dtype: str | None = None) -> Attention:
    """``f(query, key, value)`` on tensors. It answers in ``dtype``, or in that of the query."""

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = prepared(drawn, dtype, query, key, value)
        attn_scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * drawn.scale
        if drawn.softcap is not None:
            attn_scores = drawn.softcap * torch.tanh(attn_scores / drawn.softcap)
        positions = positions_of(drawn, query, key)
        bias = added(drawn, *positions)
        if bias is not None:
            attn_scores = attn_scores + bias.to(attn_scores.dtype)
        hidden = ~kept(drawn.visible, *positions)
        lowest = torch.finfo(attn_scores.dtype).min if drawn.empty_row == "uniform" else -math.inf
        attn_weights = _weights(drawn, attn_scores.masked_fill(hidden, lowest))
        if drawn.empty_row == "zero":
            attn_weights = attn_weights.masked_fill(hidden.all(-1, keepdim=True), 0.0)
        attn_weights = F.dropout(attn_weights.to(value.dtype), drawn.dropout_p)
        return arranged(drawn, attn_weights @ value)

    return attention


def prepared(drawn: Drawn, dtype: str | None, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value with a head each, turned where there is a rope."""
    query, key, value = (x.to(getattr(torch, dtype) if dtype else x.dtype) for x in tensors)
    if drawn.layout == "BTHD":
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    group_size = drawn.num_heads // drawn.num_kv_heads
    if group_size > 1 and drawn.tiled:
        key, value = key.repeat(1, group_size, 1, 1), value.repeat(1, group_size, 1, 1)
    elif group_size > 1:
        key, value = key.repeat_interleave(group_size, 1), value.repeat_interleave(group_size, 1)
    if drawn.rope is not None:
        query_at, key_at = positions_of(drawn, query, key)
        query, key = _rotated(query, query_at, drawn.rope), _rotated(key, key_at, drawn.rope)
    return query, key, value


def positions_of(drawn: Drawn, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the queries, ``(query, 1)``, and of the keys, ``(key,)``."""
    query_len, key_len = query.shape[-2], key.shape[-2]
    first = drawn.first_position(query_len, key_len)
    return torch.arange(first, first + query_len)[:, None], torch.arange(key_len)


def _rotated(x: Tensor, positions: Tensor, rope: Rotation) -> Tensor:
    exponents = torch.arange(0, rope.dims, 2, dtype=torch.float64) / rope.dims
    angles = positions.reshape(-1, 1) * (1.0 / rope.base**exponents) / rope.factor
    turning, passing = x[..., : rope.dims], x[..., rope.dims :]
    if rope.pairing == "halves":
        one, two = turning.chunk(2, dim=-1)
        across, angles = torch.cat([-two, one], dim=-1), torch.cat([angles, angles], dim=-1)
    else:
        across = torch.stack([-turning[..., 1::2], turning[..., ::2]], dim=-1).flatten(-2)
        angles = angles.repeat_interleave(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([turning * cos + across * sin, passing], dim=-1)


def added(drawn: Drawn, query_at: Tensor, key_at: Tensor) -> Tensor | None:
    """What is added to the scores, ``(head, query, key)``, in float64."""
    distance = key_at - query_at
    if drawn.slopes is not None:
        slopes = torch.tensor(drawn.slopes, dtype=torch.float64).view(-1, 1, 1)
        return slopes * distance if drawn.signed else -slopes * distance.abs()
    if drawn.distance_bias is not None:
        table = torch.from_numpy(drawn.distance_bias)
        reach = (table.shape[1] - 1) // 2
        return table[:, distance.clamp(-reach, reach) + reach]
    if drawn.place_bias is not None:
        return torch.from_numpy(drawn.place_bias)[:, : distance.shape[0], : distance.shape[1]]
    return None


def kept(visible: Visible, query_at: Tensor, key_at: Tensor) -> Tensor:
    """``(query, key)`` booleans, True where the query sees the key."""
    distance = query_at - key_at
    keep = torch.ones_like(distance, dtype=torch.bool)
    if visible.causal:
        keep = keep.logical_and(distance >= 0)
    if visible.window is not None:
        keep = keep.logical_and(distance.abs() < visible.window)
    if visible.starts:
        starts = torch.tensor(visible.starts)
        keep = keep.logical_and((query_at[..., None] >= starts).sum(-1) == (key_at[..., None] >= starts).sum(-1))
    if visible.step is not None:
        keep = keep.logical_and(distance.remainder(visible.step) == 0)
    if visible.pairs is not None:
        keep = keep.logical_and(torch.from_numpy(visible.pairs)[: keep.shape[0], : keep.shape[1]])
    if visible.prefix is not None:
        first = (key_at < visible.prefix).expand_as(keep)
        keep = keep.logical_or(first) if visible.causal else first
    return keep


def _weights(drawn: Drawn, attn_scores: Tensor) -> Tensor:
    if drawn.half_inside:
        attn_scores = attn_scores.clamp_min(-6e4).half() if drawn.empty_row == "uniform" else attn_scores.half()
    if drawn.softmax_base == "2":
        attn_scores = attn_scores * math.log(2.0)
    if drawn.sinks is None:
        return attn_scores.softmax(-1)
    sinks = torch.tensor(drawn.sinks, dtype=attn_scores.dtype).view(-1, 1, 1)
    sinks = sinks * math.log(2.0) if drawn.softmax_base == "2" else sinks
    with_sink = torch.cat([attn_scores, sinks.expand(*attn_scores.shape[:-1], 1)], dim=-1)
    return with_sink.softmax(-1)[..., :-1]


def arranged(drawn: Drawn, context: Tensor) -> Tensor:
    """The context in the order of heads, channels and axes that the box gives it in."""
    if drawn.head_order is not None:
        context = context[:, list(drawn.head_order)]
    if drawn.channel_order is not None:
        order = torch.from_numpy(drawn.channel_order)[:, None]
        context = context.gather(-1, order.expand(context.shape))
    return context.transpose(1, 2) if drawn.layout == "BTHD" else context
