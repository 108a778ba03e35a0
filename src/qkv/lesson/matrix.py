"""A matrix as the page shows it: its name, its shape, and the text and shade of every cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from qkv.oracle import Array

MOST_DECIMALS = 3


class Cell(NamedTuple):
    """One number; ``share`` from 0 to 1 is how deep it is shaded, None for not at all."""

    text: str
    share: float | None
    hidden: bool


@dataclass(frozen=True)
class Matrix:
    """A matrix with a name.

    Attributes:
        name: the name of the variable.
        array: its numbers, in two axes.
        rows: what a row stands for.
        columns: what a column stands for.
        weights: whether the numbers are weights, which are shaded.
        sums: the sums that stand beside the rows or under the columns.
        hidden: True where a query may not attend; None for nowhere.
        heads: how many heads share the columns, each as many.
    """

    name: str
    array: Array
    rows: Literal["tokens", "numbers"] = "tokens"
    columns: Literal["tokens", "numbers"] = "numbers"
    weights: bool = False
    sums: Literal["rows", "columns"] | None = None
    hidden: Array | None = None
    heads: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.array.shape)

    @property
    def cells(self) -> list[list[Cell]]:
        """Its cells, row by row."""
        hidden = np.zeros(self.array.shape, bool) if self.hidden is None else self.hidden
        return [
            [Cell(text, self._share(number), bool(covered)) for text, number, covered in zip(*row, strict=True)]
            for row in zip(texts(self.array), self.array, hidden, strict=True)
        ]

    def _share(self, number: float) -> float | None:
        return round(min(max(float(number), 0.0), 1.0), 4) if self.weights else None

    @property
    def totals(self) -> list[str]:
        """The sums of the rows or of the columns."""
        return texts([self.array.sum(axis=1 if self.sums == "rows" else 0)])[0]


def texts(array: Array) -> list[list[str]]:
    """The numbers of a matrix with equally many decimals, as few as do for all, three at most."""
    array = np.asarray(array, dtype=np.float64)
    finite = array[np.isfinite(array)]
    enough = (places for places in range(MOST_DECIMALS) if np.allclose(finite, np.round(finite, places), atol=1e-9))
    decimals = next(enough, MOST_DECIMALS)
    return [[_text(number, decimals) for number in row] for row in array]


def _text(number: float, decimals: int) -> str:
    # Adding 0 makes 0 of a rounded -0.
    shown = f"{round(float(number), decimals) + 0.0:.{decimals}f}"
    return shown.replace("-inf", "-∞").replace("-", "\u2212")


def text(number: float) -> str:
    """One number, with as few decimals as do."""
    return texts([[number]])[0][0]
