"""How far a mask lets a query see before and after its own key, and the mask of two such numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from qkv.masks import parse_mask, sides_of, window_of

BOUND = st.none() | st.integers(0, 5)


@given(BOUND, BOUND)
def test_the_mask_of_two_sides_shows_just_those_keys(before: int | None, after: int | None) -> None:
    mask = window_of((before, after))
    assert sides_of(mask) == (before, after)
    assert parse_mask(str(mask)) == mask
    shown = [
        [(before is None or query - key <= before) and (after is None or key - query <= after) for key in range(9)]
        for query in range(9)
    ]
    np.testing.assert_array_equal(mask.dense(9, 9), shown)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("causal & window(4)", (3, 0)),
        ("window(4)", (3, 3)),
        ("causal & window(4) | prefix(2)", (3, 0)),
        ("(causal(1) & window(4)) & documents", (3, 1)),
        ("causal & dilated(2)", (None, 0)),
        ("prefix(2)", (None, None)),
    ],
)
def test_what_is_opened_to_everyone_bounds_no_side(text: str, sides: tuple[int | None, int | None]) -> None:
    assert sides_of(parse_mask(text)) == sides
