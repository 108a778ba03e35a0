"""Grids: matrices as tables of text, each cell with its shade, cut to what a reader can take in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from qkv.report.matrices import Matrices

MOST = 16
"""Rows and columns that are drawn; of more, those around the first wrong cell."""

ROOMY = 5
"""Columns up to which numbers have three decimals."""

Kind = Literal["plain", "hidden", "more", "less", "same"]


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: its number; empty where a query may not attend.
        kind: how it is drawn: by its size, as hidden, or as a difference.
        shade: from 0 to 1.
        first: whether it is the first that is wrong.
    """

    text: str
    kind: Kind
    shade: float = 0.0
    first: bool = False


@dataclass(frozen=True)
class Grid:
    """One table: its name, the names of its columns, and of each row the name and the cells."""

    name: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@dataclass(frozen=True)
class Triple:
    """What should be made, what is made, and the difference.

    Attributes:
        title: what they are.
        axes: what a row and a column are.
        grids: the three.
        hides: whether a query may not attend to some key.
        cut: what of a larger matrix is drawn, in words; empty where all of it is.
    """

    title: str
    axes: tuple[str, str]
    grids: Sequence[Grid]
    hides: bool = False
    cut: str = ""


def triple(whole: Matrices, sides: tuple[str, str] = ("expected", "got")) -> Triple:
    """Matrices as three tables beside each other."""
    rows, columns = (_window(size, at) for size, at in zip(whole.expected.shape, whole.first or (0, 0), strict=True))
    part = _cut(whole, rows, columns)
    names = [f"{part.axes[0]} {part.start + row}" for row in range(part.expected.shape[0])]
    heads = [f"{part.axes[1]} {columns.start + column}" for column in range(part.expected.shape[1])]
    cells = [*(_sizes(part, side) for side in (0, 1)), _differences(part)]
    grids = [
        Grid(name, heads, list(zip(names, table, strict=True)))
        for name, table in zip((*sides, "difference"), cells, strict=True)
    ]
    hides = part.hidden is not None and bool(part.hidden[0].any() or part.hidden[1].any())
    return Triple(part.title, part.axes, grids, hides, _said(whole, rows, columns))


def _window(size: int, at: int) -> slice:
    begin = max(0, min(at - MOST // 2, size - MOST))
    return slice(begin, min(begin + MOST, size))


def _cut(whole: Matrices, rows: slice, columns: slice) -> Matrices:
    expected, got, wrong = (array[rows, columns] for array in (whole.expected, whole.got, whole.wrong))
    hidden = None if whole.hidden is None else (whole.hidden[0][rows, columns], whole.hidden[1][rows, columns])
    start = whole.start + rows.start
    return replace(whole, expected=expected, got=got, wrong=wrong, hidden=hidden, start=start)


def _said(whole: Matrices, rows: slice, columns: slice) -> str:
    spans = [
        f"{axis} {start + part.start} to {start + part.stop - 1} of {size}"
        for axis, part, size, start in zip(
            whole.axes, (rows, columns), whole.expected.shape, (whole.start, 0), strict=True
        )
        if part.stop - part.start < size
    ]
    return f"cut to {' and '.join(spans)}, around the first wrong cell" if spans else ""


def _sizes(part: Matrices, side: int) -> list[list[Cell]]:
    """Numbers of one side, the darker the larger: from the smallest of both sides, or 0, to the largest."""
    array = (part.expected, part.got)[side]
    seen = np.concatenate([one[np.isfinite(one)] for one in (part.expected, part.got)])
    low, high = seen.min(initial=0.0), seen.max(initial=0.0)
    decimals = _decimals(part)

    def cell(row: int, column: int) -> Cell:
        first = (row, column) == part.first
        value = float(array[row, column])
        # What is hidden and has a number all the same, as a row of NaN, is shown.
        if part.hidden is not None and part.hidden[side][row, column] and value in (0.0, -np.inf):
            return Cell("", "hidden", first=first)
        shade = (value - low) / (high - low) if np.isfinite(value) and high > low else 0.0
        return Cell(text_of(value, decimals), "plain", min(max(shade, 0.0), 1.0), first)

    return _table(part, cell)


def _differences(part: Matrices) -> list[list[Cell]]:
    """What is too much and what too little; cells that are right are told apart from those that differ by little."""
    with np.errstate(invalid="ignore"):
        off = part.got - part.expected
    finite = np.abs(off[np.isfinite(off) & part.wrong])
    largest = float(finite.max(initial=0.0)) or 1.0
    decimals = _decimals(part)
    both_hidden = np.zeros(off.shape, bool) if part.hidden is None else part.hidden[0] & part.hidden[1]

    def cell(row: int, column: int) -> Cell:
        if not part.wrong[row, column]:
            return Cell("", "hidden") if both_hidden[row, column] else Cell("0", "same")
        value = float(off[row, column])
        shade = min(abs(value) / largest, 1.0) if np.isfinite(value) else 1.0
        kind: Kind = "less" if value < 0 else "more" if value > 0 else "plain"
        return Cell(text_of(value, decimals, signed=True), kind, shade, (row, column) == part.first)

    return _table(part, cell)


def _table(part: Matrices, cell: Any) -> list[list[Cell]]:
    rows, columns = part.expected.shape
    return [[cell(row, column) for column in range(columns)] for row in range(rows)]


def _decimals(part: Matrices) -> int:
    return 3 if part.expected.shape[1] <= ROOMY else 2


def text_of(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with some decimals, or in powers of ten where these would hide it."""
    sign = "+" if signed and not np.isnan(value) else ""
    small = signed and 0 < abs(value) < 0.5 * 10**-decimals
    text = f"{value:{sign}.0e}" if small or 1e4 <= abs(value) < np.inf else f"{value:{sign}z.{decimals}f}"
    return re.sub("e([+-])0+", r"e\1", text).replace("e+", "e").replace("inf", "∞").replace("-", "\u2212")
