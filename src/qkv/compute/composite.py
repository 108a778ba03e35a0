"""Composite: attention as one would write it, of operations that torch can differentiate as often as one likes.

It makes all the scores. `attend` goes here for second derivatives, forward-mode derivatives, `torch.func`, and the
weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qkv.compute.arguments import Arguments, Precision
from qkv.masks import Positions


class Attended(NamedTuple):
    """What attention gives.

    Attributes:
        output: the context vectors, ``(batch, head, query, value_dim)``.
        lse: natural log of what the weights were divided by, the sink's share included, ``(batch, head, query)``;
            minus infinity for an empty row.
        weights: ``(batch, head, query, key)``, before dropout; or None.
    """

    output: Tensor
    lse: Tensor
    weights: Tensor | None = None


def composite(given: Arguments, kept: Tensor | None = None, rows: Tensor | None = None) -> Attended:
    """Attention with all its weights.

    Args:
        given: what `attend` was called with.
        kept: which weights dropout keeps, ``(batch, head, query, key)``; None drops none.
        rows: the indices of the queries that are wanted, ``(row,)``; None wants all.
    """
    device = given.query.device
    stand = torch.arange(given.query_len, device=device) if rows is None else rows
    given = given if rows is None else given.of_rows(rows)
    exact = precise(given.query.dtype, given.precision)
    query = given.query.to(exact).unflatten(1, (given.num_kv_heads, given.group_size))  # batch kv_head group query dim
    key, value = (x.to(exact)[:, :, None] for x in (given.key, given.value))
    attn_scores = (query @ key.mT).flatten(1, 2) * given.scale  # batch head query key
    if given.softcap is not None:
        attn_scores = given.softcap * torch.tanh(attn_scores / given.softcap)
    at = Positions.of(stand + given.first, torch.arange(given.key_len, device=device))
    if given.bias is not None:
        attn_scores = attn_scores + given.bias.to(exact)
    if given.slopes is not None:
        attn_scores = attn_scores + alibi(given.slopes, at).to(exact)
    may_attend = given.mask.allows(at)
    if given.table is not None:
        may_attend = may_attend & given.table
    attn_scores = attn_scores.masked_fill(~may_attend, -torch.inf)
    top, total = _sum_exp(given, attn_scores)
    empty = total == 0
    # Of an empty row the log is taken of 1, so that its derivative is no NaN.
    whole = total.masked_fill(empty, 1)
    lse = (torch.log(whole) + top).masked_fill(empty, -torch.inf)[..., 0]
    # Not by the log: beside scores that all lie far below zero it has lost the sum.
    attn_weights = torch.exp(attn_scores - top) / whole
    if given.empty_row == "uniform":
        attn_weights = attn_weights.masked_fill(empty, 1 / max(given.key_len, 1))
    # What an empty row gets are no weights that could be dropped.
    used = attn_weights if kept is None else (attn_weights * kept / (1 - given.dropout_p)).where(~empty, attn_weights)
    output = (used.unflatten(1, (given.num_kv_heads, given.group_size)) @ value).flatten(1, 2)
    if given.empty_row == "nan":  # only now: a gradient would be NaN that went through NaN
        output, attn_weights = (x.masked_fill(empty, torch.nan) for x in (output, attn_weights))
    dtype = given.query.dtype
    return Attended(output.to(dtype), lse, attn_weights.to(dtype))


def precise(dtype: torch.dtype, precision: Precision) -> torch.dtype:
    """What the scores of a query of some dtype are computed in."""
    return torch.float64 if precision == "high" else torch.promote_types(dtype, torch.float32)


def _sum_exp(given: Arguments, attn_scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row, finite, and the sum of all exponentials over its own, the sink's included."""
    if given.sinks is not None:
        sinks = given.sinks.to(attn_scores.dtype)[None, :, None, None].expand(*attn_scores.shape[:3], 1)
        attn_scores = torch.cat([attn_scores, sinks], dim=-1)
    if attn_scores.shape[-1] == 0:
        nothing = attn_scores.new_zeros(*attn_scores.shape[:-1], 1)
        return nothing, nothing
    top = attn_scores.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top.isinf(), 0)
    return top, torch.exp(attn_scores - top).sum(-1, keepdim=True)


def empty_rows(lse: Tensor) -> Tensor:
    """Which rows had nothing to attend to."""
    return lse == -torch.inf


def finite(lse: Tensor) -> Tensor:
    """The log-sum-exp, and 0 for empty rows: minus infinity less minus infinity is no number."""
    return lse.masked_fill(empty_rows(lse), 0)


def alibi(slopes: Tensor, at: Positions) -> Tensor:
    """What alibi adds to the scores of queries and keys at these positions, from a slope for each head."""
    return -slopes[:, None, None] * (at.query - at.key).abs()
