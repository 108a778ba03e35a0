"""The two attentions that come with torch.

Run `qkv check examples/torch_attention.py:multi_head`, `:CausalMultiHead`, `:scaled_dot_product` or
`:causal_scaled_dot_product`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def multi_head() -> nn.Module:
    return nn.MultiheadAttention(48, 6, batch_first=True)


class CausalMultiHead(nn.Module):
    """torch.nn.MultiheadAttention, used as a decoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(48, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def scaled_dot_product(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, enable_gqa=True)


def causal_scaled_dot_product(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
