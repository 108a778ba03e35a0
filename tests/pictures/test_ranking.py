"""The largest weights of a row, beside a sorted list."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from qkv.pictures.ranking import NO_KEY, largest


@given(st.integers(1, 400), st.sampled_from([1, 3, 8]), st.sampled_from([0.0, 0.4, 0.99]), st.integers(0, 2**32 - 1))
def test_largest(key_len: int, count: int, hidden: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 50, size=(5, key_len)) / 50  # with equal ones
    weights[rng.random(weights.shape) < hidden] = -np.inf
    keys, found = largest(weights, count, 100)
    assert keys.shape == found.shape == (5, count)
    for row in range(5):
        ranked = sorted(range(key_len), key=lambda key: -weights[row, key])
        best = [key for key in ranked if weights[row, key] > -np.inf][:count]
        assert found[row][: len(best)].tolist() == weights[row][best].tolist()
        kept = keys[row][: len(best)].astype(int) - 100
        assert weights[row][kept].tolist() == weights[row][best].tolist()
        assert len(set(kept.tolist())) == len(best)
        assert (keys[row][len(best) :] == NO_KEY).all()
        assert np.isnan(found[row][len(best) :]).all()
