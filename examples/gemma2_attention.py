"""The attention of Gemma 2, with a softcap and a scale of its own, in a layer with a window.

The class is that of transformers, with the rope and the mask that its model makes for it.
Run `qkv check examples/gemma2_attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import Gemma2Config
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding

CONFIG = Gemma2Config(
    hidden_size=48,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    num_hidden_layers=2,
    sliding_window=5,
    attn_logit_softcapping=20.0,
    query_pre_attn_scalar=20,
    attn_implementation="eager",
)


class WindowedGemma2Attention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Gemma2Attention(CONFIG, layer_idx=0)
        self.rotary_emb = Gemma2RotaryEmbedding(CONFIG)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        positions = torch.arange(x.shape[1])[None]
        mask = create_sliding_window_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        return self.attention(x, position_embeddings=self.rotary_emb(x, positions), attention_mask=mask)[0]
