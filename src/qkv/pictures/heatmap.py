"""Heat maps in the terminal: panels side by side, with tokens or numbers on both axes, and what their shades mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from qkv.masks.drawing import TICK
from qkv.pictures.heatmap_cells import ABOVE, BELOW, BROKEN, HIDDEN, MARK, MARKED, RAMP, Form, Scale, lines
from qkv.pictures.panels import Kind, Panel, scales, shown
from qkv.pictures.shades import Shading

LINES = 32
"""Lines of a picture that goes to a file."""

LONGEST_LABEL, NARROWEST, GAP = 14, 24, 2
"""Columns: of a row's label at most, of a pooled panel at least, and between two panels."""

HEADS = 2
"""Lines above the cells of a panel."""


def heat_map(panels: Sequence[Panel], console: Console, width: int, *, ascii_only: bool = False) -> RenderableType:
    """Panels as the console can show them: side by side where they fit, and what their shades mean under them.

    Args:
        panels: what to draw; of one shape, where there are several.
        console: what it is made for. Without 256 colours or without UTF-8, characters stand for shades.
        width: columns to draw in.
        ascii_only: whether characters stand for shades anyway.
    """
    painted = not ascii_only and _paints(console)
    height = max(8, console.height - 8) if console.is_terminal else LINES
    keys = max(one.numbers.shape[1] for one in panels)
    scale = {kind: Scale(kind, Shading(largest, keys), painted) for kind, largest in scales(panels).items()}
    form, across, most = _arrangement(panels, scale, (height, width))
    whole, panels = panels, [one.pooled(*most) for one in panels]
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for start in range(0, len(panels), across):
        labels = _labels(panels[start])[:: scale[panels[start].kind].rows(form)]
        drawn = [_drawn(one, form, scale[one.kind]) for one in panels[start : start + across]]
        grid.add_row(Text("\n".join(["", "", *labels]), "dim", no_wrap=True), *drawn)
    return Group(grid, *_legend(panels, whole[0].marked, form, list(scale.values())))


def _paints(console: Console) -> bool:
    """Whether the console shows half blocks in enough colours."""
    coloured = not console.no_color and console.color_system in ("256", "truecolor")
    return coloured and console.encoding.lower().startswith("utf")


def _arrangement(
    panels: Sequence[Panel], scale: Mapping[Kind, Scale], size: tuple[int, int]
) -> tuple[Form, int, tuple[int, int]]:
    """The first form in which all panels fit, under each other too; else the densest.

    Returns:
        The form, the number of panels side by side, and the rows and columns of cells at most.
    """
    height, width = size
    rows, columns = (max(lengths) for lengths in zip(*(one.numbers.shape for one in panels), strict=True))
    room = width - max(map(cell_len, _labels(panels[0]))) - GAP
    for form in Form:
        wide = columns * max(one.columns(form) for one in scale.values()) + (form is Form.NUMBERS)
        dense = scale[panels[0].kind].rows(form)
        across = min(len(panels), room // (wide + GAP))
        if across and -(-len(panels) // across) * (-(-rows // dense) + HEADS) <= height:
            return form, across, (rows, columns)
    across = max(1, min(len(panels), room // (min(columns, NARROWEST) + GAP)))
    # A character is about twice as high as it is wide; cells cover squares.
    step = max(rows / (2 * height), columns / max(1, room // across - GAP))
    return Form.DENSE, across, (max(1, int(rows / step * dense / 2)), max(1, int(columns / step)))


def _labels(panel: Panel) -> list[str]:
    """What stands before each row: the query's number, and its text where there is one."""
    places = panel.numbers_of(0)
    texts = [""] * len(places) if panel.query_tokens is None else list(map(shown, panel.query_tokens))
    wide = len(str(places[-1]))
    return [_cut(f"{place:>{wide}} {text}".rstrip(), LONGEST_LABEL) for place, text in zip(places, texts, strict=True)]


def _cut(text: str, most: int) -> str:
    return text if cell_len(text) <= most else set_cell_size(text, most - 1) + "…"


def _drawn(panel: Panel, form: Form, scale: Scale) -> Text:
    """One panel: its title, the keys, and its rows."""
    columns = scale.columns(form)
    keys = panel.numbers_of(1)
    if form is Form.NUMBERS:
        texts = map(str, keys) if panel.key_tokens is None else map(shown, panel.key_tokens)
        heads = "".join(" " * (columns - cell_len(text)) + text for text in (_cut(one, columns - 1) for one in texts))
    else:
        step = TICK // columns
        heads = "".join(f"{key:<{TICK}}" for key in keys[::step])
    wide = panel.numbers.shape[1] * columns
    title = Text(_cut(panel.title, max(wide, NARROWEST)), "bold")
    return Text("\n", no_wrap=True).join([title, Text(heads.rstrip(), "dim"), *lines(panel, form, scale)])


def _legend(
    panels: Sequence[Panel], marked: tuple[int, int] | None, form: Form, scale_of: Sequence[Scale]
) -> Iterator[Text]:
    """What the shades mean, what is hidden, broken or marked, and how much a cell covers."""
    if form is not Form.NUMBERS:
        yield from map(_shades, scale_of)
    notes = []
    if any(one.hidden.any() for one in panels):
        notes.append(f"{HIDDEN if scale_of[0].painted else 'blank'} may not attend")
    if any(one.broken.any() for one in panels):
        notes.append("not a number somewhere" if form is Form.NUMBERS else f"{BROKEN} not a number")
    if marked is not None:
        row, column = panels[0].axes
        sign = MARK if form is Form.DENSE else MARKED
        notes.append(f"{sign} first wrong: {row} {marked[0] + panels[0].start}, {column} {marked[1]}")
    if notes:
        yield Text("   ".join(notes), "dim")
    if panels[0].cells is not None:
        yield Text(f"each cell is {panels[0].cells.each}, drawn by its number of largest size", "dim")


def _shades(scale: Scale) -> Text:
    """The row of shades from the lowest number to the largest."""
    lowest = scale.written(-scale.largest) if scale.signed else "0"
    if scale.shading.least and not scale.signed:
        lowest = f"{scale.shading.least:.0e} or less"
    ends = lowest, scale.written(scale.largest)
    if scale.painted:
        swatch = Text()
        for colour in scale.colours_at(np.linspace(-1.0 if scale.signed else 0.0, 1.0, 12)):
            swatch.append(" ", f"on #{bytes(colour).hex()}")
    else:
        swatch = Text(BELOW[:0:-1] + ABOVE if scale.signed else RAMP)
    return Text.assemble((f"{scale.kind}  {ends[0]} ", "dim"), swatch, (f" {ends[1]}", "dim"))
