"""Layout: which keys each block of queries has to be computed with, and with which of them a mask is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from qkv.errors import SpecError
from qkv.masks.intervals import Ranges, Span, difference, size
from qkv.masks.mask import Mask
from qkv.masks.places import QueryOffset, position_of_first


class Rows(NamedTuple):
    """A block of queries, and the keys that they reach; all are indices.

    Attributes:
        queries: the first query, and the one after the last.
        full: keys that all of the queries may attend to: no mask is needed.
        partial: keys that some of them may attend to: the mask is needed. All others are skipped.
    """

    queries: tuple[int, int]
    full: Ranges
    partial: Ranges


@lru_cache(maxsize=256)
def layout(
    mask: Mask, query_len: int, key_len: int, *, query_offset: QueryOffset = 0, block: int = 128
) -> tuple[Rows, ...]:
    """The rows of blocks of queries, in their order; of a mask that varies, rows that serve all sequences and heads.

    Args:
        mask: who may attend to whom.
        query_len: how many queries there are.
        key_len: how many keys there are, from position 0 on.
        query_offset: position of the first query.
        block: how many queries are taken at a time.

    Raises:
        ShapeError: the mask carries numbers of another key_len.
        SpecError: block is below 1.
    """
    if block < 1:
        raise SpecError(f"block is {block}, and must be at least 1: it counts the queries taken at a time")
    mask.must_fit(key_len)
    first = position_of_first(query_offset, query_len, key_len)
    rows = []
    for start in range(0, query_len, block):
        stop = min(start + block, query_len)
        every, some = mask.reach(Span(first + start, first + stop - 1, 0, key_len - 1))
        rows.append(Rows((start, stop), every, difference(some, every)))
    return tuple(rows)


def share(rows: Sequence[Rows], key_len: int) -> float:
    """The share of all pairs of queries and keys that are computed, from 0 to 1; 0 where there are no pairs."""
    computed = sum((stop - start) * (size(full) + size(partial)) for (start, stop), full, partial in rows)
    pairs = sum(stop - start for (start, stop), _, _ in rows) * key_len
    return computed / pairs if pairs else 0.0
