"""Rows are sampled where all would take too long, and the page says so."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pictured import floats, heads, integers, picture
from qkv.masks import Causal
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights, Plan
from qkv.pictures.sampling import SMALL, one_of_each, stride_for
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads
from qkv.spec import AttentionSpec


@given(st.integers(1, 5000), st.sampled_from([2, 4, 16, 1024]))
def test_one_of_each_stretch_and_the_last(query_len: int, stride: int) -> None:
    queries = one_of_each(query_len, stride)
    assert (queries // stride).tolist() == list(range(-(-query_len // stride)))
    assert queries[-1] == query_len - 1


def test_places_vary() -> None:
    assert len(set((one_of_each(4096, 16) % 16).tolist())) == 16


@pytest.mark.parametrize(("seconds", "stride"), [(100.0, 1), (0.9, 2), (0.5, 4), (0.11, 16)])
def test_the_time_of_some_blocks_decides(monkeypatch: pytest.MonkeyPatch, seconds: float, stride: int) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def work(queries: np.ndarray) -> None:
        clock[0] += len(queries) * 1e-4  # 1.6384 s for all

    assert stride_for((2**14, 2**14), 1, seconds, work, 64) == stride
    assert stride_for((2**13, 2**13), 1, 1e-9, work, 64) == 1
    assert SMALL == 2**13 * 2**13


def test_what_is_shown_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    inputs = Inputs(**{name: rng.normal(size=(1, 1, 100, 4)) for name in ("query", "key", "value")})
    (head,) = computed_heads(AttentionSpec(mask=Causal()), inputs)
    payload = AttentionView(layers=[LayerWeights("layer 0", [head])], plan=Plan(one_of=8)).payload()
    assert payload["notes"] == ["Rows are sampled: 1 of 8 queries was computed"]
    queries = integers(payload["sampled"])
    assert len(queries) == 13
    (shown,) = heads(payload)
    assert shown["exact"] is None
    assert not shown["stages"]
    assert picture(shown["pictures"][-1]).shape == (13, 100)
    assert ((picture(shown["pictures"][-1]) > 0).sum(axis=1) == queries + 1).all()
    assert len(floats(shown["sums"])) == 13
    assert len(floats(shown["received"])) == 100
    top = floats(shown["top"]["weights"]).reshape(13, -1)
    for row, query in enumerate(queries):
        weights = head.rows(slice(int(query), int(query) + 1)).weights
        assert top[row, 0] == pytest.approx(weights.max())
