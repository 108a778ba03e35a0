"""Drawing: a truth table as lines of characters, however large it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qkv.masks.intervals import Ranges, Reach

COLUMNS, ROWS = 64, 32
"""The largest picture, in cells. A cell of a larger table stands for several queries and keys."""

TICK = 8
"""Every so-many-th column has its key's number above it."""

SHADES, ASCII = "·▒█", ".+#"
"""A cell in which no query may attend, some may, and all may."""


class Cells(NamedTuple):
    """The grid of a picture: queries and keys of a cell, and the first query and key of each."""

    queries: range
    keys: range

    @classmethod
    def of(cls, query_len: int, key_len: int, rows: int = ROWS, columns: int = COLUMNS) -> Cells:
        """The grid of a table of so many queries and keys, of so many rows and columns at most."""
        return cls(range(0, query_len, -(-query_len // rows) or 1), range(0, key_len, -(-key_len // columns) or 1))

    @property
    def each(self) -> str:
        """What a cell covers: ``4 queries by 2 keys``; empty where it is a single pair."""
        queries, keys = self.queries.step, self.keys.step
        if queries == keys == 1:
            return ""
        return f"{queries} {'queries' if queries > 1 else 'query'} by {keys} {'keys' if keys > 1 else 'key'}"


def drawn(cells: Cells, reach: Callable[[int, int], Reach], shades: str) -> str:
    """The picture, a line for each row of cells.

    Args:
        cells: the grid.
        reach: what the queries from one index to before another reach, by the keys' indices.
        shades: the characters for none, some and all.
    """
    label = "query \\ key"
    ticks = "".join(f"{key:<{TICK}}" for key in cells.keys[::TICK])
    lines = [f"{label}  {ticks}".rstrip()]
    for start in cells.queries:
        every, some = reach(start, min(start + cells.queries.step, cells.queries.stop))
        row = _filled(every, cells.keys, np.logical_and).astype(int) + _filled(some, cells.keys, np.logical_or)
        lines.append(f"{start:>{len(label)}}  " + "".join(shades[level] for level in row))
    if cells.each:
        lines.append(f"each cell is {cells.each}: {shades[2]} all pairs may attend, {shades[1]} some, {shades[0]} none")
    return "\n".join(lines)


def _filled(ranges: Ranges, keys: range, rule: np.ufunc) -> np.ndarray:
    """Whether all or any of the keys of each cell are in the ranges."""
    inside = np.zeros(keys.stop, bool)
    for start, stop in ranges:
        inside[start:stop] = True
    return rule.reduceat(inside, np.array(keys, int))
