"""Weights from other people's modules and back, each way checked by what both compute.

What a module is called inside is in `layouts`; what it computes is read from its config or its attributes, and options
say it where neither does.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from qkv.errors import SpecError
from qkv.layers.agreement import must_agree
from qkv.layers.attention_layer import Attention
from qkv.layers.layouts import Layout, Sizes, layout_of
from qkv.layers.spec_options import options_of
from qkv.spec import spec_from_config

_HEADS = ("num_heads", "n_heads", "n_head", "heads")
"""What the number of heads is called where there is no config."""


def from_module(module: nn.Module, **options: Any) -> Attention:
    """A layer that gives what an attention of another library gives, from a copy of its weights.

    Known are the attentions of torch, of transformers (llama, gpt2, gpt_neox and those that name and pack their weights
    as these do) and of tutorials (`W_query`, `W_key`, `W_value`, as layers or as matrices). Dtype and mode are kept.

    Args:
        module: the attention itself, without the block around it.
        options: of `Attention`, where the module doesn't say them or says something else.

    Raises:
        SpecError: its weights lie in no known way, or the two don't give the same; the message names the option.
    """
    layout, theirs = layout_of(module), dict(module.named_parameters())
    said = _said(module, theirs)
    if {"causal", "window", "mask"} & set(options):
        said.pop("mask", None)
    said |= options
    said |= _shape(layout, theirs, said)
    layer = Attention(**said)
    first = next(iter(theirs.values()))
    layer.to(device=first.device, dtype=first.dtype).load_state_dict(layout.read(theirs, _sizes(layer)))
    must_agree(layer, module)
    return layer.train(module.training)


def into_module(layer: Attention, module: nn.Module) -> None:
    """Nothing; gives another library's attention the weights of a layer. A bias that the layer lacks becomes zero.

    Args:
        layer: where the weights come from.
        module: an attention of the same sizes; see `from_module` for those that are known.

    Raises:
        SpecError: there is no place for a weight, or the two don't give the same; the module is then left as it was.
    """
    layout = layout_of(module)
    theirs = dict(module.named_parameters())
    written = layout.write(layer.state_dict(), theirs, _sizes(layer))
    for name, array in written.items():
        if array.shape != theirs[name].shape:
            raise SpecError(f"{name} is {tuple(theirs[name].shape)} there, and of the layer {tuple(array.shape)}")
    filled = copy.deepcopy(module)
    for one in (filled, module):
        with torch.no_grad():
            for name, parameter in one.named_parameters():
                parameter.copy_(written[name])
        if one is filled:
            must_agree(layer, filled)


def from_torch(mha: nn.MultiheadAttention, *, causal: bool = False) -> Attention:
    """A layer that gives what `mha` gives, from a copy of its weights, in its dtype, device and mode.

    The layer takes sequences batch first whatever `mha.batch_first` is, its mask says True where a token *may* attend,
    and a query that may attend to nothing gets the bias of `out_proj`, where torch gives NaN.

    Args:
        mha: the layer to copy; `kdim` and `vdim` are kept.
        causal: hides later tokens, so that no mask has to be handed over.

    Raises:
        SpecError: `mha` adds keys and values of its own (`add_bias_kv`, `add_zero_attn`).
    """
    return from_module(mha, causal=causal)


def to_torch(layer: Attention) -> nn.MultiheadAttention:
    """A `torch.nn.MultiheadAttention`, batch first, that gives what the layer gives, from a copy of its weights.

    Torch's layer keeps no mask: hand it `attn_mask=~layer.mask.dense(query_len, key_len, xp=torch)` with each call.

    Raises:
        SpecError: the layer has an option that torch's lacks.
    """
    lacking = {
        "num_kv_heads": layer.num_kv_heads != layer.num_heads,
        "head_dim": layer.head_dim * layer.num_heads != layer.embed_dim,
        "value_dim": layer.value_dim != layer.head_dim,
        "out_proj": not isinstance(layer.out_proj, nn.Linear) or layer.out_proj.out_features != layer.embed_dim,
        "rope": layer.rope is not None,
        "alibi": layer.alibi is not False,
        "softcap": layer.softcap is not None,
        "sinks": layer.sinks is not None,
        "qk_norm": layer.q_norm is not None,
        "scale": layer.scale is not None,
    }
    if any(lacking.values()):
        names = ", ".join(name for name, differs in lacking.items() if differs)
        raise SpecError(f"torch.nn.MultiheadAttention has no option for this layer's {names}; keep the layer as it is")
    mha = nn.MultiheadAttention(
        layer.embed_dim,
        layer.num_heads,
        dropout=layer.dropout,
        bias=layer.q_proj.bias is not None or layer.out_proj.bias is not None,
        kdim=layer.k_proj.in_features,
        vdim=layer.v_proj.in_features,
        batch_first=True,
    ).to(layer.q_proj.weight)
    into_module(layer, mha)
    return mha.train(layer.training)


def _said(module: nn.Module, theirs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The options that a module says of itself."""
    if isinstance(module, nn.MultiheadAttention):
        if module.bias_k is not None or module.add_zero_attn:
            raise SpecError(
                "this nn.MultiheadAttention appends a key and a value to every sequence, and Attention does not.\n"
                "Build it with add_bias_kv=False, add_zero_attn=False."
            )
        return {"num_heads": module.num_heads, "dropout": module.dropout}
    config: Any = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        said = options_of(spec_from_config(config.to_dict(), getattr(module, "layer_idx", 0) or 0))
        norm = getattr(module, "q_norm", None)
        eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
        return said if eps is None else said | {"norm_eps": eps}
    heads = next((getattr(module, name) for name in _HEADS if hasattr(module, name)), 1)
    square = any(mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2] for mask in module.buffers())
    dropout = getattr(module, "dropout", 0.0)
    return {
        "num_heads": heads,
        "causal": square or getattr(module, "causal", False) is True or "causal" in type(module).__name__.lower(),
        "dropout": getattr(dropout, "p", dropout),
    }


def _shape(layout: Layout, theirs: Mapping[str, Tensor], said: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the arrays themselves say."""
    rows, columns = (1, 0) if layout.turned else (0, 1)
    weights = [theirs[name] for name in layout.weights]
    heads, head_dim = said["num_heads"], said.get("head_dim")
    if len(weights) == 1:
        kv_heads = said.get("num_kv_heads") or heads
        head_dim = head_dim or weights[0].shape[rows] // (heads + 2 * kv_heads)
        value_dim, weights = head_dim, 3 * weights
    else:
        head_dim = head_dim or weights[0].shape[rows] // heads
        kv_heads = weights[1].shape[rows] // head_dim
        value_dim = weights[2].shape[rows] // max(kv_heads, 1)
    output = theirs.get(layout.output[0])
    return {
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "value_dim": value_dim,
        **{name: one.shape[columns] for name, one in zip(("embed_dim", "kdim", "vdim"), weights, strict=True)},
        "bias": any(name in theirs for name in layout.biases),
        "out_bias": layout.output[1] in theirs,
        "out_proj": output is not None,
        "out_dim": None if output is None else output.shape[rows],
        "sinks": "sinks" in theirs,
    }


def _sizes(layer: Attention) -> Sizes:
    return Sizes(layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.value_dim)
