"""Attention with nothing to train: the weights come from the inputs themselves.

The first rung of the ladder. Every token is its own query, key and value.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def context_vector(inputs: Float[Tensor, "token dim"], token: int) -> Float[Tensor, " dim"]:
    """The context vector of one token: every input, as much of it as that token attends to it.

    Args:
        inputs: one vector for each token.
        token: the position of the token that asks; negative positions count from the end.

    Raises:
        IndexError: there is no such token.
    """
    query = inputs[token]  # dim
    attn_scores = inputs @ query  # token
    attn_weights = torch.softmax(attn_scores, dim=-1)  # token
    return attn_weights @ inputs  # dim


def context_vectors(inputs: Float[Tensor, "token dim"]) -> Float[Tensor, "token dim"]:
    """The context vectors of all tokens at once; row i is `context_vector(inputs, i)`.

    Args:
        inputs: one vector for each token.
    """
    return attention_weights(inputs) @ inputs  # token dim


def attention_weights(inputs: Float[Tensor, "token dim"]) -> Float[Tensor, "token token"]:
    """How much each token (row) attends to each token (column); every row sums to one.

    Args:
        inputs: one vector for each token.
    """
    attn_scores = inputs @ inputs.T  # query key
    return torch.softmax(attn_scores, dim=-1)  # query key
