"""A prediction of shapes as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from qkv.shapes.boxes import boxes_text, of_pairs
from qkv.shapes.prediction import Prediction, StageShapes

HEADER = ("stage", "gives", "shape", "in names", "in numbers")


def shapes_text(prediction: Prediction) -> str:
    """The table of a prediction: a line per tensor, with the product it comes from in names and in numbers.

    Beneath it the products of queries and keys are drawn.
    """
    drawn = boxes_text(of_pairs(prediction.products))
    return f"{prediction.spec}\n\n{columns_text(HEADER, shapes_rows(prediction))}\n\n{drawn}"


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
