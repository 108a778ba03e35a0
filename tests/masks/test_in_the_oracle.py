"""Masks that carry numbers, computed with at once and block by block."""

from __future__ import annotations

import numpy as np
import pytest

from drawn import Call
from qkv.masks import Causal, Mask, SlidingWindow, documents, padding, per_head
from qkv.oracle import run_stages
from qkv.oracle.streaming import stream
from qkv.spec import AttentionSpec

NUMBERED = documents([[0, 0, 1, 1, 1, 0], [0, 1, 1, 2, 2, 2]]) & padding([5, 6])


@pytest.mark.parametrize("mask", [NUMBERED, per_head([Causal(), Causal() & SlidingWindow(2)]) | ~NUMBERED], ids=str)
def test_each_sequence_and_head_is_masked_by_its_own_numbers(mask: Mask) -> None:
    spec = AttentionSpec(2, mask=mask)
    inputs = Call(query_len=6, key_len=6).inputs(spec)
    weights = run_stages(spec, inputs).weights
    assert ((weights > 0) == np.broadcast_to(mask.dense(6, 6), weights.shape)).all()
    expected = run_stages(spec, inputs).output
    np.testing.assert_allclose(stream(spec, inputs, block=(2, 2)), expected, rtol=1e-12, atol=1e-12)
