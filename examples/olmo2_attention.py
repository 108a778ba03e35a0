"""The attention of OLMo 2, which normalises query and key over their whole width.

The class is that of transformers, with the rope and the mask that its model makes for it.
Run `qkv check examples/olmo2_attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import Olmo2Config
from transformers.masking_utils import create_causal_mask
from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention, Olmo2RotaryEmbedding

CONFIG = Olmo2Config(
    hidden_size=48,
    num_attention_heads=6,
    num_key_value_heads=2,
    num_hidden_layers=2,
    attn_implementation="eager",
)


class CausalOlmo2Attention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Olmo2Attention(CONFIG, layer_idx=0)
        self.rotary_emb = Olmo2RotaryEmbedding(CONFIG)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        positions = torch.arange(x.shape[1])[None]
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        return self.attention(x, position_embeddings=self.rotary_emb(x, positions), attention_mask=mask)[0]
