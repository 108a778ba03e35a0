"""A prediction of shapes as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from qkv.shapes.boxes import boxes_text, of_pairs
from qkv.shapes.prediction import Prediction, StageShapes

HEADER = ("stage", "gives", "shape", "in names", "in numbers")


INDENT = 11
"""Blanks before a product that has no room beside its shape."""


def shapes_text(prediction: Prediction, width: int | None = None) -> str:
    """The table of a prediction: a line per tensor, with the product it comes from in names and in numbers.

    Beneath it the products of queries and keys are drawn.

    Args:
        prediction: the shapes.
        width: columns to keep to; None for as many as it takes.
    """
    rows, said = shapes_rows(prediction), str(prediction.spec)
    table = columns_text(HEADER, rows).splitlines()
    if width is not None and max(map(len, table)) > width:
        table, said = _with_products_beneath(rows, width), "\n".join(wrap(said, width))
    return "\n\n".join([said, "\n".join(table), boxes_text(of_pairs(prediction.products))])


def _with_products_beneath(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    header, rule, *lines = columns_text(HEADER[:3], [row[:3] for row in rows]).splitlines()
    table = [header, rule]
    for line, row in zip(lines, rows, strict=True):
        blank = " " * INDENT
        table += [line, *(piece for text in row[3:]
                          for piece in wrap(text, width, initial_indent=blank, subsequent_indent=blank))]  # fmt: skip
    return table


def columns_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, each column as wide as its longest cell."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [_line(header, widths), _line(tuple("-" * width for width in widths), widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def shapes_rows(prediction: Prediction) -> list[tuple[str, str, str, str, str]]:
    """The rows of the table, in the columns of :data:`HEADER`, for whoever draws it in another way."""
    return [row for step in prediction.stages for row in _stage_rows(step)]


def _stage_rows(step: StageShapes) -> list[tuple[str, str, str, str, str]]:
    products = {product.makes: product for product in step.products}
    rows = []
    for place, (name, shape) in enumerate(step.makes.items()):
        stage = step.stage.value if place == 0 else ""
        product = products.get(name)
        if product is None:
            rows.append((stage, name, str(shape), step.note if place == 0 else "", ""))
        else:
            rows.append((stage, name, str(shape), product.names, product.numbers + product.often))
    return rows


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
