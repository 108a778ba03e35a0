"""Layers for property tests, and the parameters of a layer as the oracle takes them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from qkv.layers import Attention
from qkv.masks import Mask, causal, dilated, everything, per_head, prefix, window
from qkv.oracle import Linear, Norm, Parameters
from qkv.positions import Alibi, Rope, RopeScaling
from qkv.spec import AttentionSpec

EMBED = 20


def drawn_layer_specs() -> st.SearchStrategy[AttentionSpec]:
    """Specs that a layer has options for, all of them."""
    scalings = [
        None,
        RopeScaling("linear", 2.0),
        RopeScaling("llama3", 8.0, 32),
        RopeScaling("yarn", 4.0, 32, beta_fast=4.0),
    ]
    ropes = st.builds(
        Rope,
        pairing=st.sampled_from(["halves", "adjacent"]),
        base=st.sampled_from([10000.0, 300.0]),
        dims=st.sampled_from([None, 4]),
        scaling=st.sampled_from(scalings),
    )
    return st.builds(
        AttentionSpec,
        num_heads=st.just(6),
        num_kv_heads=st.sampled_from([None, 3, 2, 1]),
        head_dim=st.just(8),
        value_dim=st.sampled_from([None, 10]),
        embed_dim=st.just(EMBED),
        scale=st.sampled_from([None, 0.6]),
        mask=drawn_layer_masks(),
        rope=st.none() | ropes,
        alibi=st.sampled_from([None, Alibi(), Alibi((0.9, 0.5, 0.4, 0.3, 0.2, 0.1))]),
        softcap=st.sampled_from([None, 1.5]),
        sinks=st.booleans(),
        qk_norm=st.sampled_from([None, "head", "width"]),
        projection_bias=st.booleans(),
        out_proj=st.booleans(),
    )


def drawn_layer_masks() -> st.SearchStrategy[Mask]:
    """Masks of every kind that needs no numbers."""
    masks = [
        everything(),
        causal(),
        window(4),
        causal() & window(4),
        causal() & window(5) | prefix(2),
        causal() & window(6) & dilated(2),
        per_head([causal(), causal() & window(3)] * 3),
    ]
    return st.sampled_from(masks)


def layer_of(spec: AttentionSpec, seed: int = 0, **options: Any) -> Attention:
    """A layer in float64, each of its parameters random: a new bias, norm or sink would hide that it is not used."""
    torch.manual_seed(seed)
    layer = Attention.of_spec(spec, **options).double().eval()
    randomise(layer)
    return layer


@torch.no_grad()
def randomise(layer: nn.Module) -> None:
    """Nothing; gives every parameter random numbers under which scores are neither flat nor sharp."""
    for parameter in layer.parameters():
        parameter.normal_(std=1.3 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 1.0)


def parameters_of(layer: Attention) -> Parameters:
    """What the oracle takes: the layer's own tensors, so that gradients reach them."""
    out_proj = layer.out_proj if isinstance(layer.out_proj, nn.Linear) else None
    return Parameters(
        *(Linear(one.weight, one.bias) for one in (layer.q_proj, layer.k_proj, layer.v_proj)),
        out_proj=None if out_proj is None else Linear(out_proj.weight, out_proj.bias),
        q_norm=None if layer.q_norm is None else Norm("rms", layer.q_norm.weight, eps=layer.q_norm.eps),
        k_norm=None if layer.k_norm is None else Norm("rms", layer.k_norm.weight, eps=layer.k_norm.eps),
    )


def tokens(*shape: int, seed: int = 1) -> Tensor:
    """Random tokens in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
