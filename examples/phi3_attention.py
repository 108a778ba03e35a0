"""The attention of Phi-3, which keeps query, key and value in one matrix.

The class is that of transformers, with the rope and the mask that its model makes for it.
Run `qkv check examples/phi3_attention.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import Phi3Config
from transformers.masking_utils import create_causal_mask
from transformers.models.phi3.modeling_phi3 import Phi3Attention, Phi3RotaryEmbedding

CONFIG = Phi3Config(
    hidden_size=48,
    num_attention_heads=6,
    num_key_value_heads=2,
    num_hidden_layers=2,
    pad_token_id=0,
    sliding_window=None,
    attn_implementation="eager",
)


class CausalPhi3Attention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Phi3Attention(CONFIG, layer_idx=0)
        self.rotary_emb = Phi3RotaryEmbedding(CONFIG)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        positions = torch.arange(x.shape[1])[None]
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        return self.attention(x, position_embeddings=self.rotary_emb(x, positions), attention_mask=mask)[0]
