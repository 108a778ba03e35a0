"""A window's two sides: handed to a function in every form it may take them in, or said to be none it can be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.debugger import check

Array = np.ndarray


def windowed(q: Array, k: Array, v: Array, left: int, right: int) -> Array:
    queries, keys = q.shape[-2], k.shape[-2]
    ahead = np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)
    hidden = ((left >= 0) & (-ahead > left)) | ((right >= 0) & (ahead > right))
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def pair(q: Array, k: Array, v: Array, causal: bool = False, window_size: tuple[int, int] = (-1, -1)) -> Array:
    return windowed(q, k, v, window_size[0], 0 if causal else window_size[1])


def pair_alone(q: Array, k: Array, v: Array, window_size: Any = (-1, -1)) -> Array:
    return windowed(q, k, v, *window_size)


def two_numbers(q: Array, k: Array, v: Array, window_left: int = -1, window_right: int = -1) -> Array:
    return windowed(q, k, v, window_left, window_right)


def narrow(q: Array, k: Array, v: Array, window_size: Any = (3, 1)) -> Array:
    return windowed(q, k, v, *window_size)


def one_number(q: Array, k: Array, v: Array, window_size: int = 0, causal: bool = False) -> Array:
    return windowed(q, k, v, window_size - 1, 0 if causal else window_size - 1)


def switch(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    return windowed(q, k, v, -1, 0 if causal else -1)


@pytest.mark.parametrize(
    ("function", "mask"),
    [
        (pair, "causal(1) & window(4)"),
        (pair, "causal & window(3)"),
        (pair_alone, "window(4) & ~causal(-2)"),
        (pair_alone, "causal"),
        (two_numbers, "causal(1) & window(4)"),
        (two_numbers, "window(3)"),
        (narrow, "causal"),
    ],
)
def test_both_sides_are_handed_over(function: Callable[..., Array], mask: str) -> None:
    assert check(function, {"mask": mask}).verdict == "right"


def test_a_wrong_side_is_wrong() -> None:
    def turned(q: Array, k: Array, v: Array, window_size: Any = (-1, -1)) -> Array:
        return windowed(q, k, v, *window_size[::-1])

    assert check(turned, {"mask": "causal(1) & window(4)"}).verdict == "wrong"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (one_number, "'window_size' takes one number, and the window that is meant reaches 3 keys back and 1 ahead"),
        (switch, "'causal' says whether it's causal or not, and can't say the mask causal(1) & window(4)"),
    ],
)
def test_what_an_argument_cannot_say_is_said(function: Callable[..., Array], says: str) -> None:
    report = check(function, {"mask": "causal(1) & window(4)"})
    assert (report.verdict, says in report.why) == ("failed", True)


def test_a_pair_that_stands_in_the_signature_is_meant() -> None:
    report = check(narrow)
    assert (report.verdict, report.spec.mask) == ("right", qkv.causal(1) & qkv.window(4))  # type: ignore[union-attr]
    assert "3 keys before a query's own and 1 after it, from window_size=(3, 1)" in report.assumptions


def test_two_sides_that_nothing_declares_are_an_option() -> None:
    report = check(lambda q, k, v: windowed(q, k, v, 3, 1))
    assert report.verdict == "undecided"
    assert "a window of 3 keys before a query's own and 1 after it" in report.why
    assert '--mask "causal(1) & window(4)"' in report.hint


class Local:
    """Its constructor takes the two sides."""

    def __init__(self, dim: int, num_heads: int, window_size: tuple[int, int] = (3, 1)) -> None:
        self.num_heads, self.window_size = num_heads, window_size
        self.w_q, self.w_k, self.w_v, self.w_o = (np.ones((dim, dim)) for _ in range(4))

    def __call__(self, x: Array) -> Array:
        q, k, v = (
            (x @ w).reshape(*x.shape[:2], self.num_heads, -1).swapaxes(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        return windowed(q, k, v, *self.window_size).swapaxes(1, 2).reshape(x.shape) @ self.w_o


@pytest.mark.parametrize(
    ("given", "init", "sides"),
    [({}, {}, (3, 1)), ({}, {"window_size": [4, 2]}, (4, 2)), ({"mask": "causal & window(6)"}, {}, (5, 0))],
)
def test_a_class_is_built_with_both_sides(given: Any, init: Any, sides: tuple[int, int]) -> None:
    report = check(Local, given, init=init)
    assert (report.verdict, report.spec.mask) == ("right", qkv.masks.window_of(sides))  # type: ignore[union-attr]


@pytest.mark.parametrize("block", [16, 128])
def test_a_window_that_begins_with_a_whole_block_is_not_taken_for_none(block: int) -> None:
    def kernel(q: Array, k: Array, v: Array) -> Array:
        """Arrays are (B, H, T, D)."""
        keys = k.shape[2]
        rows = [
            windowed(q[:, :, t : t + 1], k[:, :, begin : here + 1], v[:, :, begin : here + 1], -1, -1)
            for t in range(q.shape[2])
            for here in [t + keys - q.shape[2]]
            for begin in [max(here - 4, 0) // block * block]
        ]
        return np.concatenate(rows, axis=2)

    (fault,) = check(kernel, {"num_heads": 6, "causal": True, "window": 5}).faults
    assert (fault.id, fault.note) == ("window-other-size", f"it begins where a block of {block} keys does")
