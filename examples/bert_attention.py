"""The attention of BERT, once in plain matrix products and once through torch's fused kernel.

The class is that of transformers.
Run `qkv check examples/bert_attention.py:eager`, or `:sdpa`.
"""

from __future__ import annotations

from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertSelfAttention

CONFIG = BertConfig(hidden_size=48, num_attention_heads=6, num_hidden_layers=2)


def eager() -> nn.Module:
    return _attention("eager")


def sdpa() -> nn.Module:
    return _attention("sdpa")


def _attention(implementation: str) -> nn.Module:
    config = BertConfig(**{**CONFIG.to_dict(), "attn_implementation": implementation})
    return BertSelfAttention(config)
