"""Grids: matrices as tables of text, each cell with its shade, cut to what a reader can take in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qkv.pictures.panels import UNSIGNED, Panel, scales
from qkv.report.matrices import Matrices
from qkv.report.pictured import panels

MOST = 16
"""Rows and columns that are drawn; of more, those around the first wrong cell."""

ODD_SUM = 1e-3
"""How far apart sums are that a reader is shown."""

ROOMY = 5
"""Columns up to which numbers have three decimals."""

Kind = Literal["plain", "hidden", "more", "less", "same", "sum"]


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: its number; empty where a query may not attend.
        kind: how it is drawn: by its size, as hidden, as a difference, or as a sum beside the others.
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
        signed: whether the numbers have two signs, and so two colours.
        cut: what of a larger matrix is drawn, in words; empty where all of it is.
        aside: why the first wrong cell stands elsewhere than the first wrong row; empty where it doesn't.
    """

    title: str
    axes: tuple[str, str]
    grids: Sequence[Grid]
    hides: bool = False
    signed: bool = False
    cut: str = ""
    aside: str = ""


def triple(whole: Matrices, sides: tuple[str, str] = ("expected", "got")) -> Triple:
    """Matrices as three tables beside each other, of the panels that a figure of them has."""
    rows, columns = (_window(size, at) for size, at in zip(whole.expected.shape, whole.first or (0, 0), strict=True))
    drawn = panels(whole, sides)
    heads = [f"{whole.axes[1]} {column}" for column in range(columns.start, columns.stop)]
    names = [f"{whole.axes[0]} {whole.start + row}" for row in range(rows.start, rows.stop)]
    largest = scales(
        replace(one, numbers=one.numbers[rows, columns], hidden=one.hidden[rows, columns]) for one in drawn
    )
    decimals = 3 if len(heads) <= ROOMY else 2
    grids = [
        Grid(name, heads, list(zip(names, _cells(one, (rows, columns), largest[one.kind], decimals), strict=True)))
        for name, one in zip((*sides, "difference"), drawn, strict=True)
    ]
    cut = _said(whole, rows, columns)
    if drawn[0].kind == "weights" and not cut:
        grids[:2] = _with_sums(grids[:2], drawn[:2], decimals)
    return Triple(
        title=whole.title,
        axes=whole.axes,
        grids=grids,
        hides=any(cell.kind == "hidden" for grid in grids for _, cells in grid.rows for cell in cells),
        signed=drawn[0].kind not in UNSIGNED,
        cut=cut,
        aside=whole.aside,
    )


def _with_sums(grids: Sequence[Grid], sides: Sequence[Panel], decimals: int) -> list[Grid]:
    """The tables of weights with the sum of each row, where these differ, and of each column, where those are 1."""
    weights = [np.where(one.hidden, 0.0, one.numbers) for one in sides]
    of_rows, of_columns = ([one.sum(axis) for one in weights] for axis in (1, 0))
    if np.allclose(of_rows[0], of_rows[1], rtol=0, atol=ODD_SUM):
        return list(grids)
    found = []
    for grid, down, across in zip(grids, of_rows, of_columns, strict=True):
        table = [(name, [*cells, _sum(total, decimals)])
                 for (name, cells), total in zip(grid.rows, down, strict=True)]  # fmt: skip
        if np.allclose(of_columns[1], 1, rtol=0, atol=ODD_SUM):
            table.append(("sum", [*(_sum(total, decimals) for total in across), Cell("", "sum")]))
        found.append(Grid(grid.name, [*grid.columns, "sum"], table))
    return found


def _sum(total: float, decimals: int) -> Cell:
    return Cell(text_of(float(total), decimals), "sum")


def _window(size: int, at: int) -> slice:
    begin = max(0, min(at - MOST // 2, size - MOST))
    return slice(begin, min(begin + MOST, size))


def _said(whole: Matrices, rows: slice, columns: slice) -> str:
    spans = [
        f"{axis} {start + part.start} to {start + part.stop - 1} of {size}"
        for axis, part, size, start in zip(
            whole.axes, (rows, columns), whole.expected.shape, (whole.start, 0), strict=True
        )
        if part.stop - part.start < size
    ]
    return f"cut to {' and '.join(spans)}, around the first wrong cell" if spans else ""


def _cells(panel: Panel, cut: tuple[slice, slice], largest: float, decimals: int) -> list[list[Cell]]:
    rows, columns = (range(part.start, part.stop) for part in cut)
    return [[_cell(panel, (row, column), largest, decimals) for column in columns] for row in rows]


def _cell(panel: Panel, place: tuple[int, int], largest: float, decimals: int) -> Cell:
    """One cell: the deeper its shade the larger its number, in two colours where there are two signs."""
    first = panel.marked == place
    if panel.hidden[place]:
        return Cell("", "hidden", first=first)
    value, is_difference = float(panel.numbers[place]), panel.kind == "difference"
    if is_difference and value == 0:
        return Cell("0", "same", first=first)
    kind: Kind = "plain"
    if panel.kind not in UNSIGNED and value:
        kind = "less" if value < 0 else "more" if value > 0 else "plain"
    shade = min(abs(value) / largest, 1.0) if np.isfinite(value) else float(is_difference)
    return Cell(text_of(value, decimals, signed=is_difference), kind, shade, first)


def text_of(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with some decimals, or in powers of ten where these would hide it."""
    sign = "+" if signed and not np.isnan(value) else ""
    small = signed and 0 < abs(value) < 0.5 * 10**-decimals
    text = f"{value:{sign}.0e}" if small or 1e4 <= abs(value) < np.inf else f"{value:{sign}z.{decimals}f}"
    return re.sub("e([+-])0+", r"e\1", text).replace("e+", "e").replace("inf", "∞").replace("-", "\u2212")
