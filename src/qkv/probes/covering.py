"""Covering: few combinations of many values in which any two values of different axes meet."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product

Row = tuple[Hashable, ...]


def pairwise(axes: Sequence[Sequence[Hashable]]) -> list[Row]:
    """Rows of one value an axis, so that any value of one axis stands beside any of another in some row.

    Axis after axis is put to the rows so far, each time the value that meets most others for the first time (IPO: Lei
    and Tai, "In-parameter-order: a test generation strategy for pairwise testing", 1998). The longest axes should come
    first: their product is the least number of rows.
    """
    rows: list[Row] = [()]
    for place, axis in enumerate(axes):
        if place < 2:
            rows = [(*row, value) for row, value in product(rows, axis)]
            continue
        unmet = {(before, value, new) for before in range(place) for value in axes[before] for new in axis}
        rows = [_grown(row, axis, unmet) for row in rows]
        rows += _further([axis[0] for axis in axes[:place]], unmet)
    return rows


Unmet = set[tuple[int, Hashable, Hashable]]
"""Place and value on an earlier axis, and value on the new one, that have not met yet."""


def _grown(row: Row, axis: Sequence[Hashable], unmet: Unmet) -> Row:
    def meetings(new: Hashable) -> Unmet:
        return {(place, value, new) for place, value in enumerate(row)} & unmet

    best = max(axis, key=lambda new: len(meetings(new)))
    unmet -= meetings(best)
    return (*row, best)


def _further(usual: Sequence[Hashable], unmet: Unmet) -> list[Row]:
    """One more row for each meeting that no row had room for."""
    return [(*usual[:place], value, *usual[place + 1 :], new) for place, value, new in sorted(unmet, key=repr)]
