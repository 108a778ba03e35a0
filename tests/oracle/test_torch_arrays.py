"""The oracle gives the same numbers on torch tensors as on NumPy arrays, and gradients flow through it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import run_stages
from qkv.oracle.one_token import all_tokens
from qkv.oracle.streaming import stream
from qkv.positions import Alibi, Rope
from qkv.spec import AttentionSpec


@settings(max_examples=25, deadline=None)
@given(drawn_specs(), drawn_calls())
def test_torch_and_numpy_agree(spec: AttentionSpec, call: Call) -> None:
    inputs = call.inputs(spec)
    tensors = inputs.map(torch.from_numpy)
    expected = run_stages(spec, inputs)
    run = run_stages(spec, tensors)
    assert run.output.dtype == torch.float64
    for name in ("scores", "may_attend", "weights", "output"):
        np.testing.assert_allclose(getattr(run, name).numpy(), getattr(expected, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(stream(spec, tensors, block=(3, 3)).numpy(), expected.output, rtol=1e-12, atol=1e-12)


def test_the_slow_loop_reads_tensors() -> None:
    spec = AttentionSpec(4, 2, mask=Causal(), rope=Rope(), qk_norm="head", sinks=True)
    inputs = Call("tokens").inputs(spec)
    tensors = inputs.map(lambda array: torch.from_numpy(array).requires_grad_())
    np.testing.assert_allclose(all_tokens(spec, tensors), run_stages(spec, inputs).output, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("route", ["stages", "stream"])
def test_gradients_reach_every_parameter(route: str) -> None:
    spec = AttentionSpec(
        4,
        2,
        mask=Causal() & SlidingWindow(3),
        rope=Rope(),
        softcap=2.0,
        sinks=True,
        qk_norm="head",
        projection_bias=True,
    )
    inputs = Call("tokens", seed=2).inputs(spec).map(lambda array: torch.from_numpy(array).requires_grad_())
    output = run_stages(spec, inputs).output if route == "stages" else stream(spec, inputs, block=(2, 2))
    output.square().sum().backward()
    for array in inputs.arrays():
        assert array.grad is not None
        assert torch.isfinite(array.grad).all()
        assert array.grad.any()


@pytest.mark.parametrize("spec", [AttentionSpec(4, 2, mask=Causal(), sinks=True), AttentionSpec(4, 2, alibi=Alibi())])
def test_gradients_are_right(spec: AttentionSpec) -> None:
    """More queries than keys under a causal mask: the first two rows are empty but for their sinks."""
    inputs = Call(query_len=5, key_len=3).inputs(spec).map(torch.from_numpy)

    def output(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = run_stages(spec, inputs.but(query=query, key=key, value=value)).output
        return result

    handed = [array.requires_grad_() for array in (inputs.query, inputs.key, inputs.value)]
    assert torch.autograd.gradcheck(output, handed, fast_mode=True)
