"""The attention of MPT.

The class is that of transformers, with the alibi and the causal mask that its model makes for it.
Run `qkv check examples/mpt_attention.py`.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import MptConfig
from transformers.masking_utils import create_causal_mask
from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor

CONFIG = MptConfig(d_model=48, n_heads=6, n_layers=2, attn_implementation="eager")


class AlibiMptAttention(nn.Module):
    """One layer's attention as a function of the tokens alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MptAttention(CONFIG, layer_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        """What the attention adds to tokens (batch, token, embed)."""
        mask = create_causal_mask(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)
        alibi = build_mpt_alibi_tensor(CONFIG.n_heads, x.shape[1])
        return self.attention(x, position_bias=alibi, attention_mask=mask.bool())[0]
