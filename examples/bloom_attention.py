"""The attention of Bloom.

The class is that of transformers, with the alibi and the causal mask that its model makes for it.
Run `qkv check examples/bloom_attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BloomConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

CONFIG = BloomConfig(hidden_size=48, n_head=6, n_layer=2, attn_implementation="eager")


class AlibiBloomAttention(nn.Module):
    """One layer's attention as a function of the tokens alone, without the residual that Bloom adds inside."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = BloomAttention(CONFIG, layer_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        is_token = torch.ones(x.shape[:2], dtype=torch.long)
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        alibi = build_alibi_tensor(is_token, CONFIG.n_head, x.dtype)
        return self.attention(x, residual=torch.zeros_like(x), alibi=alibi, attention_mask=mask)[0]
