"""Attention, right by construction, on the fastest path that is right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.compute.arguments import EmptyRow, Precision, read_arguments
from qkv.compute.composite import composite
from qkv.masks import Mask, QueryOffset


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Mask | Tensor | str | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi: bool | Tensor | Sequence[float] | None = None,
    query_offset: QueryOffset | None = None,
    dropout_p: float = 0.0,
    empty_row: EmptyRow = "zero",
    return_lse: bool = False,
    return_weights: bool | None = None,
    precision: Precision = "same",
) -> Tensor | tuple[Tensor, ...]:
    """The context vectors, ``(batch, head, query, value_dim)``."""
    given = read_arguments(
        query, key, value, mask, bias, scale, softcap, sinks, alibi, query_offset, dropout_p, empty_row, precision
    )
    kept = torch.rand(given.batch, given.num_heads, given.query_len, given.key_len) >= dropout_p if dropout_p else None
    attended = composite(given, kept)
    output = attended.output.reshape(*query.shape[:-1], value.shape[-1])
    extra = [attended.lse] if return_lse else []
    if return_weights and attended.weights is not None:
        extra.append(attended.weights)
    return (output, *extra) if extra else output
