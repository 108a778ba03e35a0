"""Flash: torch's own fused kernel for CPUs, one tile at a time.

It is the kernel below `F.scaled_dot_product_attention`, called by its private name because only that gives the
log-sum-exp, by which parts are merged, and only its backward takes the merged one. Where torch has no such operator
the tiles are computed by `blockwise`.

Two things of it must be known: empty tensors end the process, and a row that may attend to nothing has a
log-sum-exp of 0 (torch 2.13).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

FEW_ROWS = 16
"""Up to so many queries, a group's heads are laid below each other: their shared keys are read once."""

_FORWARD = (
    "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., "
    "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)"
)
_BACKWARD = (
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, "
    "Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, "
    "float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"
)


@cache
def available() -> bool:
    """Whether this torch has the operators, with the signatures that are known here."""
    aten: Any = torch.ops.aten
    try:
        forward = aten._scaled_dot_product_flash_attention_for_cpu.default
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    except AttributeError:
        return False
    return str(forward._schema) == _FORWARD and str(backward._schema) == _BACKWARD


def forward(
    query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The context vectors of a tile and their log-sum-exp, 0 for a row that may attend to nothing.

    Args:
        query: ``(batch, head, query, dim)``.
        key: ``(batch, kv_head, key, dim)``.
        value: the same.
        added: is added to the scores, and broadcasts to them; float32 or the query's dtype.
        causal: whether query ``i`` sees only keys up to ``i``.
        scale: what the scores are multiplied by.
    """
    batch, heads, rows, dim = query.shape
    kv_heads = key.shape[1]
    below = heads > kv_heads and rows <= FEW_ROWS and not causal
    if below:
        query = query.reshape(batch, kv_heads, -1, dim)
        added = _below(added, heads, kv_heads, rows)
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=causal, attn_mask=added, scale=scale
    )
    return (output.reshape(batch, heads, rows, dim), lse.reshape(batch, heads, rows)) if below else (output, lse)


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    added: Tensor | None,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value through a tile.

    Args:
        grad: of the whole attention's output, at these queries.
        query: as `forward` has it.
        key: the same.
        value: the same.
        output: the whole attention's, at these queries; as merged of all tiles.
        lse: likewise, and finite.
        added: as `forward` has it.
        causal: the same.
        scale: the same.
    """
    given: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, output, lse, 0.0, causal, attn_mask=added, scale=scale
    )
    return given


def _below(added: Tensor | None, heads: int, kv_heads: int, rows: int) -> Tensor | None:
    """What is added to the scores, a group's heads laid below each other."""
    if added is None or (added.shape[1] == 1 and added.shape[2] == 1):
        return added
    added = added.expand(-1, heads, rows, -1)
    return added.reshape(added.shape[0], kv_heads, heads // kv_heads * rows, added.shape[3])
