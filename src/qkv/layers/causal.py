"""Causal attention: a token uses itself and earlier tokens only, so it never sees what it is to predict.

The third rung of the ladder; over self-attention it adds the mask, and dropout on the weights.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CausalAttention(nn.Module):
    """Self-attention in one head in which no token attends to a later one.

    The mask is made for the length that comes in, so there is no longest length. No row of weights is ever empty: a
    token may always attend to itself.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    Args:
        embed_dim: numbers in the vector of a token that comes in.
        head_dim: numbers in its query, key and value, and so in the context vector that goes out.
        bias: the projections add a trainable constant.
        dropout: share of the weights set to zero in training; the others grow to make up for it. Off in `eval()`.
    """

    def __init__(self, embed_dim: int, head_dim: int, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def attention_weights(self, inputs: Float[Tensor, "*batch token embed_dim"]) -> Float[Tensor, "*batch token token"]:
        """How much each token (row) attends to each token (column), before dropout: zero above the diagonal."""
        query = self.q_proj(inputs)  # batch query head_dim
        key = self.k_proj(inputs)  # batch key head_dim
        attn_scores = (query / self.head_dim**0.5) @ key.mT  # batch query key

        tokens = inputs.shape[-2]
        may_attend = torch.ones(tokens, tokens, dtype=torch.bool, device=inputs.device).tril()  # query key
        # Before the softmax, so that the weights left over still sum to one.
        attn_scores = attn_scores.masked_fill(~may_attend, -torch.inf)  # batch query key
        return torch.softmax(attn_scores, dim=-1)  # batch query key

    def forward(self, inputs: Float[Tensor, "*batch token embed_dim"]) -> Float[Tensor, "*batch token head_dim"]:
        """The context vector of every token: the values up to its own, weighted by its row of weights."""
        attn_weights = self.dropout(self.attention_weights(inputs))  # batch query key
        value = self.v_proj(inputs)  # batch key head_dim
        return attn_weights @ value  # batch query head_dim
