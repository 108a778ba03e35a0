"""Summary: what a picture needs of a head's weights, gathered in one pass over blocks of queries.

A block's rows are whole, so memory is that of a block by all keys. Blocks are taken on several threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from qkv.oracle.blocks import blocks
from qkv.oracle.streaming import THREADS, in_turn
from qkv.pictures.oddities import Seen, put_right
from qkv.pictures.pyramid import Level, pooled, shades
from qkv.pictures.ranking import NO_KEY, largest
from qkv.pictures.weights import HeadWeights

Array = np.ndarray

CELLS = 2**20
"""Weights of a block."""


@dataclass(frozen=True)
class Summary:
    """What is known of the weights of one head.

    Attributes:
        picture: the finest level, as bytes.
        entropy: of each computed query, in bits; NaN where no weight is.
        distance: mean distance to the keys, in tokens, weighted; NaN where no weight is.
        first: weight on the first key.
        sums: of each row.
        received: mean weight of each key, over the computed queries that may attend to it; NaN where there are none.
        keys: the keys of the largest weights of each row, falling, ``(query, count)``; ``NO_KEY`` for none.
        largest: these weights, NaN for none.
        seen: what is odd about the weights.
    """

    picture: Array
    entropy: Array
    distance: Array
    first: Array
    sums: Array
    received: Array
    keys: Array
    largest: Array
    seen: Seen


@dataclass(frozen=True)
class Part:
    """The summary of a block of queries.

    Attributes:
        at: which of the computed queries these are.
        cells: where in the picture they stand, rows and columns.
        keys: the keys of ``received`` and ``visited``.
        received: the sum of the weights that each key is given.
        visited: by how many queries each key may be attended to.
        rows: the other attributes of :class:`Summary` that have an entry for each query, by their names.
    """

    at: slice
    cells: tuple[slice, slice]
    picture: Array
    keys: slice
    received: Array
    visited: Array
    rows: dict[str, Array]
    seen: Seen


def summarise(
    head: HeadWeights, queries: Array, level: Level, *, first_query: int, count: int, advance: Callable[[int], None]
) -> Summary:
    """The summary of the head over some of its queries.

    Args:
        head: the weights.
        queries: numbers of the queries, rising.
        level: the finest picture to make.
        first_query: position of query 0 among the keys.
        count: how many of the largest weights of each row are kept.
        advance: is told how many queries were done since it was told last.
    """
    total = _Total(len(queries), head.shape[1], level, count)
    with np.errstate(all="ignore"), threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        for part in in_turn(pool, _tasks(head, queries, level, first_query, count)):
            total.add(part)
            advance(part.at.stop - part.at.start)
    return total.summary()


def block_size(key_len: int) -> int:
    """How many queries are taken at a time."""
    return max(1, CELLS // key_len)


def _tasks(
    head: HeadWeights, queries: Array, level: Level, first_query: int, count: int
) -> Iterator[Callable[[], Part]]:
    for at in blocks(len(queries), block_size(head.shape[1])):
        yield lambda at=at: part_of(head, queries, at, level, first_query, count)  # type: ignore[misc]


def part_of(head: HeadWeights, queries: Array, at: slice, level: Level, first_query: int, count: int) -> Part:
    """The summary of one block of queries."""
    with np.errstate(all="ignore"):  # of each thread its own
        keys, weights, may_attend, seen = put_right(head.rows(_as_slice(queries[at])))
        shown = np.where(may_attend, weights, -np.inf)
        top_keys, top = largest(shown, count, keys.start)
        picture = shades(pooled(pooled(shown, 1, keys.start, level.per_column), 0, at.start, level.per_row))
        row, column = at.start // level.per_row, keys.start // level.per_column
        return Part(
            at,
            (slice(row, row + len(picture)), slice(column, column + picture.shape[1])),
            picture,
            keys,
            weights.sum(axis=0, dtype=np.float64),
            may_attend.sum(axis=0, dtype=np.int32),
            _statistics(weights, queries[at] + first_query, keys) | {"keys": top_keys, "largest": top},
            seen,
        )


def _as_slice(queries: Array) -> Array | slice:
    """Queries without a gap as a slice, which is read without a copy."""
    gapless = queries[-1] - queries[0] == len(queries) - 1
    return slice(int(queries[0]), int(queries[-1]) + 1) if gapless else queries


def _statistics(weights: Array, positions: Array, keys: slice) -> dict[str, Array]:
    """Entropy, distance, weight on the first key and sum of each row; a weight below 0 counts in the sum alone."""
    shares = np.maximum(weights, 0)
    total = shares.sum(axis=1, dtype=np.float64)
    logarithms = np.log2(np.where(shares > 0, shares, 1))
    distances = np.abs(positions[:, None] - np.arange(keys.start, keys.stop)).astype(weights.dtype)
    return {
        "entropy": np.log2(total) - np.einsum("qk,qk->q", shares, logarithms) / total,
        "distance": np.einsum("qk,qk->q", shares, distances) / total,
        "first": weights[:, 0] if keys.start == 0 else np.zeros(len(weights)),
        "sums": weights.sum(axis=1, dtype=np.float64),
    }


@dataclass
class _Total:
    """What the parts come to."""

    query_len: int
    key_len: int
    level: Level
    count: int
    seen: Seen = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.picture = np.zeros((self.level.rows, self.level.columns), np.uint8)
        self.received, self.visited = np.zeros(self.key_len), np.zeros(self.key_len, np.int64)
        self.rows = {name: np.zeros(self.query_len) for name in ("entropy", "distance", "first", "sums")}
        self.rows["keys"] = np.full((self.query_len, self.count), NO_KEY)
        self.rows["largest"] = np.full((self.query_len, self.count), np.nan)

    def add(self, part: Part) -> None:
        """Puts a part in its place."""
        cells = self.picture[part.cells]
        np.maximum(cells, part.picture, out=cells)
        self.received[part.keys] += part.received
        self.visited[part.keys] += part.visited
        for name, numbers in part.rows.items():
            self.rows[name][part.at] = numbers
        self.seen.update(part.seen)

    def summary(self) -> Summary:
        """The whole."""
        received = np.where(self.visited > 0, self.received / np.maximum(self.visited, 1), np.nan)
        return Summary(picture=self.picture, received=received, seen=self.seen, **self.rows)
