"""The softmax over the keys that a query may attend to, with a rule for the query that may attend to none."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from qkv.errors import ShapeError


def softmax_over_keys(
    attn_scores: Float[Tensor, "*batch query key"], mask: Bool[Tensor, ...] | None, *, causal: bool = False
) -> Float[Tensor, "*batch query key"]:
    """The weights: every row sums to one over the keys it may attend to, and the other keys get zero.

    An empty row, of a query that may attend to nothing, is zero throughout: its context vector is zero and it sends no
    gradient back. (Softmax alone would make it NaN, as in `torch.nn.MultiheadAttention`.)

    Args:
        attn_scores: the scaled scores.
        mask: True = may attend; any shape that broadcasts to that of the scores. None hides nothing.
        causal: hides the later keys too; the last query stands at the last key.

    Raises:
        TypeError: the mask is not boolean.
        ShapeError: the mask does not broadcast to the scores.
    """
    if mask is not None:
        check_mask(mask, tuple(attn_scores.shape))
    if causal:
        query_len, key_len = attn_scores.shape[-2:]
        earlier = torch.ones(query_len, key_len, dtype=torch.bool, device=attn_scores.device)
        earlier = earlier.tril(key_len - query_len)  # query key
        mask = earlier if mask is None else mask & earlier  # batch query key
    if mask is None:
        return torch.softmax(attn_scores, dim=-1)  # batch query key
    attn_scores = attn_scores.masked_fill(~mask, -torch.inf)  # batch query key
    attn_weights = torch.softmax(attn_scores, dim=-1)  # batch query key
    return attn_weights.masked_fill(~mask, 0.0)  # batch query key


def check_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Nothing, where the mask is boolean and broadcasts to scores of this shape.

    Raises:
        TypeError: it is not boolean.
        ShapeError: it does not broadcast.
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}, and must be torch.bool with True = may attend.\n"
            "For zeros and ones write mask.bool(); for an additive mask, mask == 0; for one that hides, ~hidden."
        )
    given = tuple(mask.shape)
    aligned = zip(reversed(given), reversed(scores), strict=False)
    if len(given) > len(scores) or any(size not in (1, axis) for size, axis in aligned):
        raise ShapeError(
            f"mask has shape {given}, and must broadcast to the scores, {scores}: batch, head, query, key.\n"
            "For one row of keys per sequence write mask[:, None, None, :]; for one matrix per sequence, mask[:, None]."
        )
