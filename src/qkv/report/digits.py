"""Digits: numbers of the report as text, with as many digits as a reader needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.report.document import Example, RowPair
from qkv.report.matrices import unlike

MOST_NUMBERS = 64
"""Arrays with more numbers than this are named and not printed."""

MOST_WRITTEN = 64 * 64
"""Arrays with more numbers than this are named and not written for programs either."""

DECIMALS = range(4, 10)
"""How many decimals numbers have: the fewest that tell the right one from the other."""


def number(value: float, decimals: int = 4) -> str:
    """A number with some decimals, or in powers of ten where that hides it."""
    if value == 0 or not np.isfinite(value) or 1e-3 <= abs(value) < 1e5:
        return f"{value:z.{decimals}f}"
    return f"{value:.{decimals - 1}e}"


def apart(expected: float, got: float, fewest: int = DECIMALS[0]) -> tuple[str, str]:
    """Two numbers with as many decimals as make them differ, and no fewer than these."""
    decimals = _decimals([expected], [got], fewest)
    return number(expected, decimals), number(got, decimals)


def _decimals(expected: Sequence[float], got: Sequence[float], fewest: int = DECIMALS[0]) -> int:
    """The fewest decimals with which some number differs from the one below it."""
    pairs = list(zip(expected, got, strict=True))
    few = range(fewest, DECIMALS.stop)
    enough = (one for one in few if any(number(left, one) != number(right, one) for left, right in pairs))
    return next(enough, DECIMALS[0])


@dataclass(frozen=True)
class RowTexts:
    """The part of two rows in which they differ first, as text.

    Attributes:
        start: place of the first number.
        expected: the numbers of the right row.
        got: those of the other.
        differs: where the two differ to a reader.
        of: how many numbers the whole row has.
    """

    start: int
    expected: Sequence[str]
    got: Sequence[str]
    differs: Sequence[bool]
    of: int

    @property
    def whole(self) -> bool:
        """Whether it is all of the row."""
        return len(self.expected) == self.of


def row_texts(pair: RowPair, most: int) -> RowTexts:
    """The first numbers of both rows, or as many around the first that differs, where that would not be among them."""
    rows = [np.asarray(row, float) for row in (pair.expected, pair.got)]
    size, differs = len(rows[0]), differing(pair)
    first = int(np.argmax(differs))
    start = 0 if first < most else min(first, size - most)
    expected, got = ([float(value) for value in row[start : start + most]] for row in rows)
    decimals = _decimals(expected, got)
    right, made = ([number(value, decimals) for value in row] for row in (expected, got))
    return RowTexts(start, right, made, list(map(bool, differs[start : start + most])), size)


def differing(pair: RowPair) -> Any:
    """Where the rows of a pair differ, as far as the printed digits can show it."""
    return unlike(np.asarray(pair.expected, float), np.asarray(pair.got, float), 10.0 ** -DECIMALS[-1])


def told_apart(rows: Sequence[RowPair]) -> list[RowPair]:
    """The pairs of rows that differ, one of those that hold the same numbers."""
    kept: list[RowPair] = []
    for pair in rows:
        known = any(np.array_equal(pair.expected, one.expected) and np.array_equal(pair.got, one.got) for one in kept)
        if not known and differing(pair).any():
            kept.append(pair)
    return kept


def left_out(example: Example) -> str:
    """Which arrays of an example are not printed, and where they are; empty where all are."""
    larger, largest = (example.arrays(most)[1] for most in (MOST_NUMBERS, MOST_WRITTEN))
    elsewhere = [name for name in larger if name not in largest]
    parts = [
        f"{where}: {', '.join(names)}"
        for where, names in (("in --format json", elsewhere), ("too large to be written out", largest))
        if names
    ]
    return f"left out here, {'; '.join(parts)}" if parts else ""


def numbers(array: Any, width: int) -> str:
    """An array in lines of this width at most; axes of size one in front of a matrix are left out."""
    values = np.asarray(array)
    return np.array2string(
        np.squeeze(values) if values.ndim > 2 else values,
        precision=4,
        suppress_small=True,
        separator=" ",
        max_line_width=width,
        formatter={"bool": lambda value: "1" if value else "0"},
    ).replace("\n\n", "\n")
