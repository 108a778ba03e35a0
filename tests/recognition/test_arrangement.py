"""Axes are named by whole axes in some order; what a view mixes up is none of these orders."""

import numpy as np
import pytest

from qkv.recognition.arrangement import arrangements, collapsed, grouping

AXES = ("batch", "head", "query", "dim")
SIZES = (2, 6, 7, 8)


@pytest.mark.parametrize(
    ("order", "shape", "names"),
    [
        ((0, 1, 2, 3), (2, 6, 7, 8), ("batch", "head", "query", "dim")),
        ((0, 2, 1, 3), (2, 7, 48), ("batch", "query", "head*dim")),
        ((2, 0, 1, 3), (7, 2, 48), ("query", "batch", "head*dim")),
        ((0, 1, 2, 3), (12, 7, 8), ("batch*head", "query", "dim")),
        ((0, 1, 2, 3), (2, 2, 3, 7, 8), ("batch", "head part", "head part", "query", "dim")),
        ((0, 2, 1, 3), (14, 48), ("batch*query", "head*dim")),
    ],
)
def test_whole_axes_in_any_order_and_grouping_are_named(order, shape, names) -> None:
    array = np.random.default_rng(0).normal(size=SIZES)
    found = [
        given
        for index, given in arrangements(SIZES, AXES, shape)
        if np.array_equal(array.ravel()[index], array.transpose(order).reshape(shape))
    ]
    assert found == [names]


def test_heads_merged_by_a_view_are_no_arrangement() -> None:
    array = np.random.default_rng(0).normal(size=SIZES)
    merged = array.reshape(2, 7, 48)
    assert not any(np.array_equal(array.ravel()[index], merged) for index, _ in arrangements(SIZES, AXES, (2, 7, 48)))
    assert grouping(SIZES, (2, 7, 48), AXES) is None


def test_axes_without_change_are_left_out() -> None:
    array = np.broadcast_to(np.arange(6.0).reshape(1, 2, 1, 3), (4, 2, 5, 3))
    small, kept = collapsed(array)
    assert (small.shape, kept) == ((2, 3), (1, 3))
    assert collapsed(np.full((2, 3), np.nan))[0].shape == ()
