"""The attentions that mistakes are made in: each a spec and one call's inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from qkv.masks import Causal
from qkv.oracle import Inputs, Linear, Norm, Parameters
from qkv.positions import Rope, RopeScaling
from qkv.spec import AttentionSpec


def _linear(rng: np.random.Generator, rows: int, columns: int) -> Linear:
    return Linear(rng.normal(size=(rows, columns)) / columns**0.5, rng.normal(size=rows))


def _fused(*projections: Linear) -> Linear:
    return Linear(
        np.concatenate([projection.weight for projection in projections]),
        np.concatenate([projection.bias for projection in projections]),
    )


def square(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """As many key heads as query heads, all matrices square: where most mistakes raise no error."""
    q, k, v, out = (_linear(rng, 24, 24) for _ in range(4))
    parameters = Parameters(q, k, v, out, fused=_fused(q, k, v))
    spec = AttentionSpec(num_heads=4, mask=Causal(), rope=Rope(base=5000.0))
    return spec, Inputs(x=rng.normal(size=(3, 5, 24)), parameters=parameters)


def grouped(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Grouped heads, every axis with a size of its own."""
    q, k, v, out = _linear(rng, 72, 56), _linear(rng, 36, 56), _linear(rng, 30, 56), _linear(rng, 56, 60)
    q_norm, k_norm = Norm(weight=rng.normal(size=12)), Norm(weight=rng.normal(size=12))
    grouped = np.concatenate([projection.weight.reshape(3, -1, 56) for projection in (q, k, v)], axis=1).reshape(-1, 56)
    biases = np.concatenate([projection.bias.reshape(3, -1) for projection in (q, k, v)], axis=1).reshape(-1)
    parameters = Parameters(q, k, v, out, q_norm=q_norm, k_norm=k_norm, fused=Linear(grouped, biases))
    rope = Rope(pairing="adjacent", base=700.0, dims=8)
    spec = AttentionSpec(num_heads=6, num_kv_heads=3, mask=Causal(), rope=rope, qk_norm="head")
    return spec, Inputs(x=rng.normal(size=(2, 7, 56)), parameters=parameters)


def decode(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Ready-made query, key and value, with four keys from before the first query."""
    spec = AttentionSpec(num_heads=6, num_kv_heads=3, mask=Causal(), rope=Rope(base=700.0, dims=8))
    shapes = {"query": (2, 6, 3, 12), "key": (2, 3, 7, 12), "value": (2, 3, 7, 10)}
    return spec, Inputs(**{name: rng.normal(size=shape) for name, shape in shapes.items()}, strided=True)


def contiguous(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Ready-made query, key and value, each lying in memory in the order of its axes."""
    spec, inputs = decode(rng)
    return spec, inputs.but(strided=False)


def cross(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Query, key and value each made from tokens of its own."""
    q, k, v, out = _linear(rng, 24, 20), _linear(rng, 24, 20), _linear(rng, 24, 20), _linear(rng, 20, 24)
    tokens = {name: rng.normal(size=(3, 5, 20)) for name in ("x", "source", "value_source")}
    return AttentionSpec(num_heads=4, rope=Rope()), Inputs(**tokens, parameters=Parameters(q, k, v, out))


def wide_norm(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Normalised over the width, yarn on part of each head, and key and value fused."""
    q, k, v, out = _linear(rng, 72, 56), _linear(rng, 36, 56), _linear(rng, 36, 56), _linear(rng, 56, 72)
    norms = {name: Norm("layer", rng.normal(size=size)) for name, size in (("q_norm", 72), ("k_norm", 36))}
    rope = Rope(base=700.0, dims=8, scaling=RopeScaling("yarn", 4.0, original_length=64))
    spec = AttentionSpec(num_heads=6, num_kv_heads=3, mask=Causal(), rope=rope, qk_norm="width")
    return spec, Inputs(x=rng.normal(size=(2, 7, 56)), parameters=Parameters(q, k, v, out, fused=_fused(k, v), **norms))


def narrow(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Heads as wide as the tokens, and frequencies scaled as in Llama 3.1."""
    parameters = Parameters(*(_linear(rng, 24, 6) for _ in range(3)), _linear(rng, 6, 24))
    rope = Rope(base=100.0, scaling=RopeScaling("llama3", 8.0, original_length=32))
    spec = AttentionSpec(num_heads=4, rope=rope, mask=Causal())
    return spec, Inputs(x=rng.normal(size=(3, 5, 6)), parameters=parameters)


def padded(rng: np.random.Generator) -> tuple[AttentionSpec, Inputs]:
    """Sequences of unequal length, filled up at the end."""
    parameters = Parameters(*(_linear(rng, 24, 24) for _ in range(4)))
    is_token = np.arange(5) < np.array([[5], [3], [4]])
    spec = AttentionSpec(num_heads=4, mask=Causal(), rope=Rope(base=5000.0))
    return spec, Inputs(x=rng.normal(size=(3, 5, 24)), is_token=is_token, parameters=parameters)


Example = Callable[[np.random.Generator], tuple[AttentionSpec, Inputs]]
EXAMPLES: tuple[Example, ...] = (square, grouped, decode, cross, wide_norm, narrow, padded)


@cache
def made(example: Example) -> tuple[AttentionSpec, Inputs]:
    return example(np.random.default_rng(7))
