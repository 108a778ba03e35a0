"""The backward pass, derived a second time by torch's automatic differentiation of the same forward stages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Causal
from qkv.oracle import Inputs, gradients_of, run_stages
from qkv.positions import Rope
from qkv.spec import AttentionSpec

NAMES = ("query", "key", "value", "bias", "sinks", "x", "source", "value_source")
PARTS = ("q_proj", "k_proj", "v_proj", "out_proj", "q_norm", "k_norm")


def leaves(inputs: Inputs) -> dict[str, torch.Tensor]:
    """Every floating array of the inputs by its name."""
    found = {name: getattr(inputs, name) for name in NAMES}
    for part in PARTS:
        for name in ("weight", "bias"):
            found[f"{part}.{name}"] = getattr(getattr(inputs.parameters, part, None), name, None)
    return {name: array for name, array in found.items() if array is not None}


@settings(max_examples=60, deadline=None)
@given(drawn_specs(), drawn_calls())
def test_every_gradient_is_that_of_automatic_differentiation(spec: AttentionSpec, call: Call) -> None:
    inputs = call.inputs(spec)
    tensors = inputs.map(
        lambda array: torch.from_numpy(array).requires_grad_() if array.dtype.kind == "f" else torch.from_numpy(array)
    )
    output = run_stages(spec, tensors).output
    cotangent = np.random.default_rng(call.seed).normal(size=tuple(output.shape))
    wanted = leaves(tensors)
    given_by_torch = dict(
        zip(
            wanted,
            torch.autograd.grad(output, list(wanted.values()), torch.from_numpy(cotangent), allow_unused=True),
            strict=True,
        )
    )
    with np.errstate(invalid="ignore"):
        got = gradients_of(run_stages(spec, inputs), cotangent)
    used = {name: gradient for name, gradient in given_by_torch.items() if gradient is not None}
    assert got.keys() == used.keys()
    for name, gradient in used.items():
        np.testing.assert_allclose(got[name], gradient.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_a_gradient_is_the_slope_of_the_output(name: str) -> None:
    """Each entry moved a little, and the output looked at: no derivation at all."""
    spec = AttentionSpec(4, 2, head_dim=3 * 2, mask=Causal(), rope=Rope(), softcap=1.5, sinks=True)
    inputs = Call("heads", batch=1, query_len=3, key_len=4, seed=5).inputs(spec).but(parameters=None)
    rng = np.random.default_rng(6)
    cotangent = rng.normal(size=run_stages(spec, inputs).output.shape)
    direction = rng.normal(size=getattr(inputs, name).shape)
    step = 1e-6

    def value(by: float) -> float:
        moved = inputs.but(**{name: getattr(inputs, name) + by * direction})
        return float(np.sum(run_stages(spec, moved).output * cotangent))

    slope = (value(step) - value(-step)) / (2 * step)
    gradient = gradients_of(run_stages(spec, inputs), cotangent)[name]
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-7)


def test_gradients_of_tensors_are_tensors() -> None:
    spec = AttentionSpec(4, 2, mask=Causal(), qk_norm="head")
    inputs = Call("tokens", seed=3).inputs(spec)
    run = run_stages(spec, inputs)
    cotangent = np.ones_like(run.output)
    expected = gradients_of(run, cotangent)
    got = gradients_of(run_stages(spec, inputs.map(torch.from_numpy)), torch.from_numpy(cotangent))
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name].numpy(), gradient, rtol=1e-12, atol=1e-12)
