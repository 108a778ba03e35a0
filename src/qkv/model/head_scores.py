"""What a head looks for, as a number from its weights: 1 is all of its attention, 0 none.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def previous_token(attn_weights: ArrayLike) -> NDArray[np.float64]:
    """The share of attention that goes to the token just before, the mean over all queries but the first.

    Args:
        attn_weights: ``(..., query, key)`` of self-attention.

    Returns:
        ``(...)``: a number for each head.
    """
    weights = np.asarray(attn_weights, dtype=np.float64)
    return np.diagonal(weights, offset=-1, axis1=-2, axis2=-1).mean(-1)


def induction(attn_weights: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """The share of attention that goes to what came after the same token earlier, the mean over tokens with such.

    Args:
        attn_weights: ``(..., query, key)`` of self-attention.
        tokens: the sequence, ``(token,)``.

    Returns:
        ``(...)``: a number for each head; NaN where no token comes twice.
    """
    weights, sequence = np.asarray(attn_weights, dtype=np.float64), np.asarray(tokens)
    earlier = np.tril(sequence[:, None] == sequence[None, :], -1)  # query key
    if not earlier.any():
        return np.full(weights.shape[:-2], np.nan)
    after = np.roll(earlier, 1, axis=-1)  # query key
    return (weights * after).sum(-1)[..., earlier.any(-1)].mean(-1)
