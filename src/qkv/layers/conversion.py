"""From torch's own multi-head layer to the one here."""

from __future__ import annotations

from torch import nn

from qkv.errors import SpecError
from qkv.layers.multi_head import MultiHeadAttention


def from_torch(mha: nn.MultiheadAttention, *, causal: bool = False) -> MultiHeadAttention:
    """A layer that gives what `mha` gives, from a copy of its weights, in its dtype, device and mode.

    The layer takes sequences batch first whatever `mha.batch_first` is, its mask says True where a token *may* attend,
    and a query that may attend to nothing gets the bias of `out_proj`, where torch gives NaN.

    Args:
        mha: the layer to copy; `kdim` and `vdim` are kept.
        causal: hides later tokens, so that no mask has to be handed over.

    Raises:
        SpecError: `mha` adds keys and values of its own (`add_bias_kv`, `add_zero_attn`).
    """
    if mha.bias_k is not None or mha.add_zero_attn:
        raise SpecError(
            "this nn.MultiheadAttention appends a key and a value to every sequence, and MultiHeadAttention does not.\n"
            "Build it with add_bias_kv=False, add_zero_attn=False."
        )
    bias = mha.in_proj_bias is not None
    layer = MultiHeadAttention(mha.embed_dim, mha.num_heads, bias=bias, dropout=mha.dropout, causal=causal)
    layer.k_proj = nn.Linear(mha.kdim, mha.embed_dim, bias=bias)
    layer.v_proj = nn.Linear(mha.vdim, mha.embed_dim, bias=bias)
    layer.to(mha.out_proj.weight)
    layer.load_state_dict(mha.state_dict())
    return layer.train(mha.training)
