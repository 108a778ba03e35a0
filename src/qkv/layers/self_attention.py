"""Self-attention with trainable weights: each token gets a query, a key and a value of its own.

The second rung of the ladder; over the simplified one it adds the three projections and the scale.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Scaled dot-product attention of every token to every token, in one head.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.

    Args:
        embed_dim: numbers in the vector of a token that comes in.
        head_dim: numbers in its query, key and value, and so in the context vector that goes out.
        bias: the projections add a trainable constant.
    """

    def __init__(self, embed_dim: int, head_dim: int, *, bias: bool = False) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, head_dim, bias=bias)

    def attention_weights(self, inputs: Float[Tensor, "*batch token embed_dim"]) -> Float[Tensor, "*batch token token"]:
        """How much each token (row) attends to each token (column); every row sums to one."""
        query = self.q_proj(inputs)  # batch query head_dim
        key = self.k_proj(inputs)  # batch key head_dim
        # Without the scale the scores spread with head_dim, and the softmax would put all weight on one token. It comes
        # before the product, since a score in float16 ends at 65504.
        attn_scores = (query / self.head_dim**0.5) @ key.mT  # batch query key
        return torch.softmax(attn_scores, dim=-1)  # batch query key

    def forward(self, inputs: Float[Tensor, "*batch token embed_dim"]) -> Float[Tensor, "*batch token head_dim"]:
        """The context vector of every token: the values of all tokens, weighted by its row of weights."""
        value = self.v_proj(inputs)  # batch key head_dim
        return self.attention_weights(inputs) @ value  # batch query head_dim
