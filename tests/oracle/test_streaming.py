"""The oracle in blocks gives the numbers of the oracle at once, whatever the spec and wherever the blocks end."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings, strategies as st

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import run_stages
from qkv.oracle.streaming import stream
from qkv.spec import AttentionSpec


@settings(max_examples=100, deadline=None)
@given(drawn_specs(), drawn_calls(), st.sampled_from([1, 2, 3, 64]))
def test_blocks_change_nothing(spec: AttentionSpec, call: Call, block: int) -> None:
    inputs = call.inputs(spec)
    np.testing.assert_allclose(
        stream(spec, inputs, block=(block, block)), run_stages(spec, inputs).output, rtol=1e-12, atol=1e-12
    )


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
