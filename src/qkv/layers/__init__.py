"""Right attentions to use, in PyTorch: a ladder from four lines to many heads, one rung a file.

Rung by rung: `simplified`, `self_attention`, `causal`, `multi_head`.
"""

from qkv.layers.simplified import (
    attention_weights as attention_weights,
    context_vector as context_vector,
    context_vectors as context_vectors,
)
