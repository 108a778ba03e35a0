"""A candidate may be held to one mask for each head, inside of it or handed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.debugger import check

Array = np.ndarray


def masked(query: Array, key: Array, value: Array, mask: Array) -> Array:
    """True in the mask may attend."""
    scores = np.where(mask, query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5, -np.inf)
    with np.errstate(invalid="ignore"):  # more queries than keys leave the first rows no key
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ value


def causal_and_window(query: Array, key: Array, value: Array) -> Array:
    queries, keys = query.shape[-2], key.shape[-2]
    back = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
    return masked(query, key, value, np.stack([back >= 0, (back >= 0) & (back < 3)]))


@pytest.mark.parametrize("candidate", [masked, causal_and_window])
def test_each_head_may_be_held_to_a_mask_of_its_own(candidate: Any) -> None:
    report = check(candidate, {"mask": "per_head([causal, causal & window(3)])"})
    assert (report.verdict, report.spec.num_heads) == ("right", 2)  # type: ignore[union-attr]


@pytest.mark.slow
def test_masks_of_the_other_heads_are_wrong() -> None:
    report = check(causal_and_window, {"mask": "per_head([causal & window(3), causal])"})
    assert report.verdict == "wrong"
