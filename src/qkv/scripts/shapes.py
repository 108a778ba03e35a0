"""The shapes of all that a script makes, by the names of their axes where it is known what they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from qkv.adapters.messages import Hosting
from qkv.adapters.notebooks import cell_of
from qkv.adapters.recording import Operation
from qkv.adapters.texts import Text
from qkv.errors import CandidateError
from qkv.recognition.arrangement import REPEATED
from qkv.scripts.anatomy import product_of
from qkv.scripts.reading import Reading
from qkv.scripts.walking import read
from qkv.shapes import Line, Shape, Sheet
from qkv.shapes.hiding import hidden_by


def sheet_of_script(text: Text, host: Hosting) -> Sheet:
    """The shapes of a script's or a notebook's arrays, in its own sizes.

    Args:
        text: the script.
        host: who runs it.
    """
    sheet = Sheet(Path(text.file).stem, text.file)
    try:
        run = host.script(str(text.path), text.source)
    except CandidateError as error:  # it broke a limit, or ended the process that ran it
        return replace(sheet, why=error.message, hint=error.hint, detail=error.detail)
    reading = read(run)
    lines = tuple(_lines(text, reading).values())
    sizes = dict(_sizes(lines))
    sheet = replace(sheet, sizes=sizes, lines=lines, warnings=tuple(hidden_by(sizes, lines)))
    if not run.error:
        return sheet
    where = f"it stops at {text.place(run.line)}: " if run.line else ""
    return replace(sheet, why=where + run.error, hint=run.clash.partition(": ")[2])


def _lines(text: Text, reading: Reading) -> dict[int, Line]:
    """What each expression makes that a variable holds or a product gives, by its place; a loop's is counted."""
    lines: dict[int, Line] = {}
    for operation in reading.operations:
        for value in operation.results[:1] if operation.place is not None else ():
            place = operation.place or 0
            if place in lines:
                lines[place] = replace(lines[place], times=lines[place].times + 1)
            elif (line := _line(text, reading, operation, value)) is not None:
                lines[place] = line
    return lines


def _line(text: Text, reading: Reading, operation: Operation, value: int) -> Line | None:
    array, sight, place = reading.array(value), reading.sights.get(value), reading.place(reading.made_by.get(value, -1))
    product = None if sight is None else product_of(reading, operation, sight)
    if place is None or not array.ndim:
        return None
    name = place.target.strip("()") if len(operation.results) > 1 else reading.name(value)
    if not name and product is None:
        return None
    axes = tuple(str(size) for size in array.shape) if sight is None else tuple(map(_axis, reading.axes(sight)))
    cell, line = cell_of(text.cells, place.line) if text.cells else (0, place.line)
    products = () if product is None else (product,)
    return Line(f"cell {cell}" if cell else text.file, line, place.code, name, Shape(axes, array.shape), products)


def _axis(name: str) -> str:
    return "1" if name == REPEATED else name


def _sizes(lines: tuple[Line, ...]) -> Iterator[tuple[str, int]]:
    """The size of each axis that has one name and one size throughout."""
    sizes: dict[str, set[int]] = {}
    for line in lines:
        for axis, size in zip(line.shape.axes, line.shape.sizes, strict=True):
            if axis.isidentifier():
                sizes.setdefault(axis, set()).add(size)
    return ((axis, one.pop()) for axis, one in sizes.items() if len(one) == 1)
