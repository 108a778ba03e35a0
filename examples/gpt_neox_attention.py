"""The attention of GPT-NeoX, where a quarter of each head turns.

The class is that of transformers, with the rope and the mask that its model makes for it.
Run `qkv check examples/gpt_neox_attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import GPTNeoXConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding

CONFIG = GPTNeoXConfig(
    hidden_size=96,
    num_attention_heads=6,
    num_hidden_layers=2,
    rotary_pct=0.25,
    attn_implementation="eager",
)


class CausalGPTNeoXAttention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = GPTNeoXAttention(CONFIG, layer_idx=0)
        self.rotary_emb = GPTNeoXRotaryEmbedding(CONFIG)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        positions = torch.arange(x.shape[1])[None]
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        return self.attention(x, position_embeddings=self.rotary_emb(x, positions), attention_mask=mask)[0]
