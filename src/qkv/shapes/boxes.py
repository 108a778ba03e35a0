"""Boxes: matrix products drawn to scale, as text, with the name and the length of each axis beside its edge."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from qkv.shapes.product import Product, Shape

PAIRS = {"query", "key"}
"""The axes of the products that make attention: the scores, and what their weights mix."""

LONGEST = 6
"""Lines of the longest axis. Up to so many numbers each one is a dot; beyond that a line stands for several."""

WIDER = 2
"""Characters of a line, across, for one down: about as long to the eye."""


def of_pairs(products: Sequence[tuple[str, Product]]) -> list[tuple[str, Product]]:
    """The products of queries and keys among some, with their titles; of those that are alike the first."""
    found: dict[tuple[Shape, Shape], tuple[str, Product]] = {}
    for title, one in products:
        if {*one.left.axes, *one.right.axes} >= PAIRS:
            found.setdefault((one.left, one.right), (title, one))
    return list(found.values())


def boxes_text(products: Sequence[tuple[str, Product]]) -> str:
    """Each product as three boxes under its title, ``left @ right = result``, all of one scale."""
    longest = max((size for _, one in products for size in (*one.left.sizes, *one.right.sizes)), default=1)
    return "\n\n".join(f"{title}\n{_product(one, longest)}" for title, one in products)


def _product(product: Product, longest: int) -> str:
    shapes = {"": product.left, "@ ": product.right, "= ": product.result}
    blocks = [_box(sign, shape, longest) for sign, shape in shapes.items()]
    widths = [max(map(len, block)) for block in blocks]
    rows = zip_longest(*blocks, fillvalue="")
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _box(sign: str, shape: Shape, longest: int) -> list[str]:
    """The lines of one matrix: its columns' axis, and its frame with the rows' axis beside the first line."""
    (row, column), (rows, columns) = shape.axes, shape.sizes
    if longest <= LONGEST:
        down, inside = rows, " ".join("·" * columns)
    else:
        down, across = (max(1, round(size * LONGEST / longest)) for size in (rows, columns))
        inside = " " * (WIDER * across - 1)
    label = f"{sign}{row} {rows}"
    margin, edge = " " * len(label), "─" * (len(inside) + 2)
    lines = [f"{margin} {column} {columns}", f"{margin} ┌{edge}┐"]
    lines += [f"{margin if place else label} │ {inside} │" for place in range(down)]
    return [*lines, f"{margin} └{edge}┘"]
