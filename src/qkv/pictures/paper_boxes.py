"""Boxes on paper: matrix products drawn to scale, with the name and the length of each axis at its edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from qkv.pictures.paper import PaperFigure, style
from qkv.shapes import Product, Shape

CELLS = 16
"""Up to so many numbers along the longest axis each one has its cell."""

GAP, ABOVE, THINNEST = 0.5, 0.3, 0.02
"""Between two boxes, and above a row of them for names; the thinnest box. All for a longest axis of 1."""


def figure_of_products(products: Sequence[tuple[str, Product]], *, width: float, title: str) -> Figure:
    """A figure of its own with a row for each product: ``left @ right = result``, all of one scale.

    Args:
        products: with what is written at the left of each.
        width: of the figure, in inches.
        title: of the figure; empty for none.
    """
    longest = max(size for _, one in products for size in (*one.left.sizes, *one.right.sizes))
    high = [max(_side(one.left.sizes[0], longest), _side(one.right.sizes[0], longest)) + ABOVE for _, one in products]
    wide = max(_wide(one, longest) for _, one in products)
    with style():
        figure = PaperFigure(layout="compressed")
        figure.set_size_inches(width, width / wide * sum(high) + 0.2 * len(products) + (0.3 if title else 0.0))
        rows = figure.subplots(len(products), 1, squeeze=False, height_ratios=high)
        for (name, one), place, height in zip(products, rows.flat, high, strict=True):
            _draw(place, one, longest)
            place.set(xlim=(0, wide + 0.02), ylim=(height - ABOVE + 0.02, -ABOVE), aspect="equal")
            place.set_title(name, loc="left", parse_math=False)
            place.set_axis_off()
        if title:
            figure.suptitle(title, parse_math=False)
        return figure


def _side(size: int, longest: int) -> float:
    return max(THINNEST, size / longest)


def _wide(product: Product, longest: int) -> float:
    return sum(GAP + _side(one.sizes[1], longest) for one in (product.left, product.right, product.result))


def _draw(axes: Axes, product: Product, longest: int) -> None:
    """Nothing; draws the three boxes of a product, from the left to the right."""
    at = 0.0
    for sign, shape in (("", product.left), ("@", product.right), ("=", product.result)):
        high, wide = (_side(size, longest) for size in shape.sizes)
        # The left matrix and the result are of one height: signs stand between these, as in a line.
        axes.text(at + 0.06, _side(product.left.sizes[0], longest) / 2, sign, ha="left", va="center", size=9)
        at += GAP
        _box(axes, shape, at, high, wide, cells=longest <= CELLS)
        at += wide


def _box(axes: Axes, shape: Shape, at: float, high: float, wide: float, *, cells: bool) -> None:
    """Nothing; draws one matrix whose left edge is there, with its axes' names."""
    (row, column), (rows, columns) = shape.axes, shape.sizes
    looks: dict[str, Any] = {"fill": False, "linewidth": 0.4, "edgecolor": "#b5b5b5", "clip_on": False}
    for place in range(rows * columns if cells else 0):
        corner = at + place % columns * wide / columns, place // columns * high / rows
        axes.add_patch(Rectangle(corner, wide / columns, high / rows, **looks))
    axes.add_patch(Rectangle((at, 0), wide, high, **{**looks, "linewidth": 1.0, "edgecolor": "black"}))
    axes.text(at - 0.04, high / 2, f"{row} {rows}", ha="right", va="center", size=7, rotation="vertical")
    axes.text(at + wide / 2, -0.05, f"{column} {columns}", ha="center", va="bottom", size=7)
