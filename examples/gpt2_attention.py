"""The attention of GPT-2.

The class is that of transformers, with the causal mask that its model makes for it.
Run `qkv check examples/gpt2_attention.py`.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import GPT2Config
from transformers.masking_utils import create_causal_mask
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

CONFIG = GPT2Config(n_embd=48, n_head=6, n_layer=2, attn_implementation="eager")


class CausalGPT2Attention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = GPT2Attention(CONFIG, layer_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        return self.attention(x, attention_mask=mask)[0]
