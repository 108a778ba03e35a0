"""Cells of a heat map in the terminal: as numbers, as colours, two rows a line, or as characters."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

from qkv.pictures.panels import UNSIGNED, Kind, Panel, written
from qkv.pictures.shades import Shading, colours

ZERO = "#dddddd"
"""The colour of 0, which can be told from a dark terminal and from a light one."""

BROKEN_COLOUR = (208, 0, 208)
RAMP, BELOW, ABOVE = ".:-=+*#%@", ".-~=", ".+*#"
"""Characters from 0 on, where there are no colours."""

HIDDEN, BROKEN, MARKED, MARK = "·", "!", "[]", "x"
"""What stands in a cell in which a query may not attend, in one without a finite number, around the marked one, and in
the marked one where it has one character."""


class Form(Enum):
    """How cells become characters."""

    NUMBERS = "their numbers"
    WIDE = "two characters each"
    DENSE = "one character each; in colours, two rows in one"


class Scale(NamedTuple):
    """What the shades of a kind mean; ``painted`` tells whether there are colours."""

    kind: Kind
    shading: Shading
    painted: bool

    @property
    def largest(self) -> float:
        """The number that has the deepest shade."""
        return self.shading.largest

    @property
    def signed(self) -> bool:
        """Whether there are shades below 0."""
        return self.kind not in UNSIGNED

    def colours(self, numbers: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The colour of each number, ``(..., 3)``."""
        return self.colours_at(np.clip(numbers / self.largest, -1, 1) if self.signed else self.shading.shares(numbers))

    def colours_at(self, shares: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The colours of shares of the deepest shade, ``(..., 3)``; below 0 where there are signs."""
        anchors = np.array([list(bytes.fromhex(one[1:])) for one in colours(ZERO, signed=self.signed)])
        at = np.linspace(-1.0 if self.signed else 0.0, 1.0, len(anchors))
        return np.stack([np.interp(shares, at, channel) for channel in anchors.T], -1).astype(np.uint8)

    def columns(self, form: Form) -> int:
        """Characters of a cell: with numbers, those of the longest and one before it."""
        if form is not Form.NUMBERS:
            return 2 if form is Form.WIDE else 1
        return 1 + len(self.written(-self.largest if self.signed else self.largest))

    def rows(self, form: Form) -> int:
        """Rows of cells in a line."""
        return 2 if form is Form.DENSE and self.painted else 1

    def character(self, number: float) -> str:
        """The character of a number; only where shades begin, at 0 mostly, it is the first one."""
        ramp = RAMP if not self.signed else BELOW if number < 0 else ABOVE
        share = min(abs(number) / self.largest, 1.0) if self.signed else float(self.shading.shares(number))
        return ramp[int(np.ceil(share * (len(ramp) - 1)))]

    def written(self, number: float) -> str:
        """The number as it stands in a cell."""
        return written(number, self.kind, self.largest)


def lines(panel: Panel, form: Form, scale: Scale) -> Iterator[Text]:
    """The rows of cells, line by line. Each has one character more than its cells where they hold numbers."""
    colours = scale.colours(np.where(panel.hidden | panel.broken, 0.0, panel.numbers))
    colours[panel.broken] = BROKEN_COLOUR
    rows = scale.rows(form)
    for row in range(0, len(colours), rows):
        yield _half_blocks(panel, colours, row) if rows == 2 else _line(panel, form, scale, colours[row], row)


def _line(panel: Panel, form: Form, scale: Scale, colours: NDArray[np.uint8], row: int) -> Text:
    line = Text()
    for column, colour in enumerate(colours):
        hidden = panel.hidden[row, column]
        text = _content(panel, form, scale, row, column)
        line.append(text, "dim" if hidden else _on(colour) if scale.painted else "")
    if form is Form.NUMBERS:
        line.append(MARKED[1] if panel.marked == (row, len(colours) - 1) else " ")
    return line


def _content(panel: Panel, form: Form, scale: Scale, row: int, column: int) -> str:
    """The characters of one cell."""
    columns = scale.columns(form)
    number = panel.numbers[row, column]
    marked = panel.marked == (row, column)
    if form is Form.NUMBERS:
        after = panel.marked == (row, column - 1)
        text = (HIDDEN if scale.painted else "") if panel.hidden[row, column] else scale.written(number)
        return (MARKED[0] if marked else MARKED[1] if after else " ") + f"{text:>{columns - 1}}"
    if panel.hidden[row, column]:
        return (HIDDEN if scale.painted else " ") * columns
    if panel.broken[row, column]:
        return BROKEN * columns
    if marked:
        return MARKED if columns == len(MARKED) else MARK
    return (" " if scale.painted else scale.character(number)) * columns


def _on(colour: NDArray[np.uint8]) -> Style:
    """A background of the colour, and black or white on it."""
    dark = float(colour @ (0.299, 0.587, 0.114)) < 128
    return Style(color="#ffffff" if dark else "#000000", bgcolor=Color.from_rgb(*colour))


def _half_blocks(panel: Panel, colours: NDArray[np.uint8], row: int) -> Text:
    """Two rows of cells in one line: the upper half of a character has one colour, the lower half another."""
    line = Text()
    for column in range(colours.shape[1]):
        upper, lower = (_half(panel, colours, one, column) for one in (row, row + 1))
        if panel.marked in ((row, column), (row + 1, column)):
            line.append(MARK, _on(colours[panel.marked]))
        elif upper is not None:
            line.append("▀", Style(color=upper, bgcolor=lower))
        elif lower is not None:
            line.append("▄", Style(color=lower))
        else:
            line.append(HIDDEN, "dim")
    return line


def _half(panel: Panel, colours: NDArray[np.uint8], row: int, column: int) -> Color | None:
    """The colour of a cell; None where nothing is painted."""
    if row >= len(colours) or panel.hidden[row, column]:
        return None
    return Color.from_rgb(*colours[row, column])
