"""Drawn boxes through torch's fused attention, where an additive mask and one more key can say what is drawn."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.black_boxes.drawn import Drawn
from benchmarks.black_boxes.tensors import Attention, added, arranged, kept, positions_of, prepared


def can_be_fused(drawn: Drawn) -> bool:
    """Whether fused attention can compute it: it knows no softcap, no float16 inside and no NaN for an empty row."""
    return not (drawn.softcap or drawn.half_inside or drawn.empty_row == "nan")


def in_fused_torch(drawn: Drawn, dtype: str | None = None) -> Attention:
    """``f(query, key, value)`` on tensors. It answers in ``dtype``, or in that of the query."""
    to_base_e = math.log(2.0) if drawn.softmax_base == "2" else 1.0

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = prepared(drawn, dtype, query, key, value)
        mask = _mask(drawn, query, key, to_base_e).to(query.dtype)
        if drawn.sinks is not None:
            # A key of zeros scores nothing, its value gives nothing, and its bias is the sink.
            sinks = torch.tensor(drawn.sinks, dtype=mask.dtype).view(-1, 1, 1) * to_base_e
            mask = torch.cat([mask, sinks.expand(-1, mask.shape[1], 1)], dim=-1)
            key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[None], dropout_p=drawn.dropout_p, scale=drawn.scale * to_base_e
        )
        return arranged(drawn, context)

    return attention


def _mask(drawn: Drawn, query: Tensor, key: Tensor, to_base_e: float) -> Tensor:
    positions = positions_of(drawn, query, key)
    bias = added(drawn, *positions)
    shape = (query.shape[1], query.shape[2], key.shape[2])
    mask = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.expand(shape) * to_base_e
    lowest = torch.finfo(query.dtype).min if drawn.empty_row == "uniform" else -math.inf
    return mask.masked_fill(~kept(drawn.visible, *positions), lowest)
