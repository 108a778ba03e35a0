"""Sampling: which queries are computed where all of them would take too long."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

Array = np.ndarray

SMALL = 2**26
"""So many weights are computed without asking how long it takes."""


def stride_for(
    lengths: tuple[int, int], heads: int, seconds: float, work: Callable[[Array], object], block: int
) -> int:
    """Of how many queries one is to be computed, a power of two.

    Args:
        lengths: ``query_len`` and ``key_len``.
        heads: how many heads there are.
        seconds: how long all may take.
        work: computes some queries; it is timed on three blocks, at the begin, in the middle and at the end.
        block: how many queries are computed at a time.
    """
    query_len, key_len = lengths
    if query_len * key_len * heads <= SMALL:
        return 1
    block = min(block, query_len)
    work(np.arange(block))  # the first time costs more
    started = time.perf_counter()
    for first in (0, (query_len - block) // 2, query_len - block):
        work(np.arange(first, first + block))
    expected = (time.perf_counter() - started) / (3 * block) * query_len * heads
    return 1 << max(0, int(np.ceil(np.log2(expected / seconds))))


def one_of_each(query_len: int, stride: int) -> Array:
    """The numbers of the queries to compute: one of each ``stride``, at a place drawn within it, and the last one.

    A fixed place would be blind to whatever repeats itself in step with it.
    """
    first = np.arange(0, query_len, stride)
    drawn = first + np.random.default_rng(0).integers(0, np.minimum(stride, query_len - first))
    drawn[-1] = query_len - 1
    return drawn
