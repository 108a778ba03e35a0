"""Ranges of key positions, and what a mask says of some queries in them: which keys all, and which any of them see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of positions ``(first, after the last)``: sorted, not empty, and with a gap between any two."""

NOTHING: Ranges = ()


class Span(NamedTuple):
    """Some queries beside some keys, by the absolute positions of the first and the last of each."""

    first_query: int
    last_query: int
    first_key: int
    last_key: int

    def keys(self, start: int | None = None, stop: int | None = None) -> Ranges:
        """The span's keys from ``start`` to before ``stop``; None is where the span itself begins or ends."""
        start = self.first_key if start is None or start < self.first_key else start
        stop = self.last_key + 1 if stop is None or stop > self.last_key else stop
        return ((start, stop),) if start < stop else NOTHING

    def moved(self, by: int) -> Span:
        """The same queries and keys, all ``by`` tokens further on."""
        return Span(*(position + by for position in self))


class Reach(NamedTuple):
    """Which keys of a span its queries reach.

    Attributes:
        every: keys that every one of the queries may attend to, or fewer than these where that can't be told cheaply.
        some: keys that at least one of them may attend to, or more than these where that can't be told cheaply.
    """

    every: Ranges
    some: Ranges

    def moved(self, by: int) -> Reach:
        """The same keys, ``by`` tokens further on."""
        return Reach(*(tuple((start + by, stop + by) for start, stop in ranges) for ranges in self))


def union(parts: Iterable[Ranges], *, gap: int = 0) -> Ranges:
    """What is in any of the ranges; also what stands in gaps between them that are no longer than ``gap``."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(one for ranges in parts for one in ranges):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return tuple(joined)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """What is in both."""
    both, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        (a, b), (c, d) = left[i], right[j]
        start, stop = a if a > c else c, b if b < d else d
        if start < stop:
            both.append((start, stop))
        if b < d:
            i += 1
        else:
            j += 1
    return tuple(both)


def difference(left: Ranges, right: Ranges) -> Ranges:
    """What is in the left ones and not in the right ones."""
    if not left or not right:
        return left
    edges = [left[0][0], *(edge for one in right for edge in one), left[-1][1]]
    gaps = tuple((start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop)
    return intersection(left, gaps)


def runs(true: Any, first: int) -> Ranges:
    """Where a row of booleans is True, its first entry standing at position ``first``."""
    padded = np.concatenate([[False], np.asarray(true, bool), [False]])
    edges = (np.flatnonzero(padded[1:] != padded[:-1]) + first).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def size(ranges: Ranges) -> int:
    """How many positions the ranges hold."""
    return sum(stop - start for start, stop in ranges)
