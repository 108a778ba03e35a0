"""The oracle in blocks gives the numbers of the oracle at once, whatever the spec and wherever the blocks end."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import run_stages
from qkv.oracle.streaming import contexts, stream
from qkv.spec import AttentionSpec


@settings(max_examples=40, deadline=None)
@given(drawn_specs(), drawn_calls(), st.sampled_from([1, 2, 3, 64]))
def test_blocks_change_nothing(spec: AttentionSpec, call: Call, block: int) -> None:
    inputs = call.inputs(spec)
    np.testing.assert_allclose(
        stream(spec, inputs, block=(block, block)), run_stages(spec, inputs).output, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("gain", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_scores_of_any_size_give_the_same_in_blocks(gain: float, softcap: float | None) -> None:
    spec = AttentionSpec(2, mask=Causal(), softcap=softcap)
    inputs = Call(query_len=20, key_len=20).inputs(spec)
    inputs = inputs.but(query=gain * inputs.query)
    expected = run_stages(spec, inputs).output
    np.testing.assert_allclose(stream(spec, inputs, block=(8, 8)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(drawn_specs(), drawn_calls())
def test_quick_blocks_are_off_by_the_rounding_of_float32(spec: AttentionSpec, call: Call) -> None:
    inputs = call.inputs(spec)
    exact, quick = (contexts(spec, inputs, block=(3, 3), quick=quick) for quick in (False, True))
    for one, other in zip(exact, quick, strict=True):
        assert other.context.dtype == np.float64
        np.testing.assert_allclose(other.context, one.context, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_memory_grows_with_length_and_not_with_its_square() -> None:
    spec = AttentionSpec(2, mask=Causal() & SlidingWindow(100))
    one, four = (_peak(spec, length) for length in (512, 2048))
    assert four < 5 * one


def _peak(spec: AttentionSpec, length: int) -> int:
    inputs = Call(query_len=length, key_len=length).inputs(spec)
    tracemalloc.start()
    stream(spec, inputs, block=(64, 64))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
