"""Names of axes that hold at other lengths too: a number may be that of an axis by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qkv.shapes.product import Product, Shape
from qkv.shapes.sheet import Line


def confirmed(lines: Sequence[Line], again: Sequence[Line]) -> tuple[Line, ...]:
    """The lines, an axis that is called otherwise at other lengths by its number.

    Args:
        lines: what the code makes.
        again: what it makes with other numbers of tokens and sequences.
    """
    others = {(line.file, line.line, line.code): line for line in again}
    return tuple(_confirmed(line, others.get((line.file, line.line, line.code), line)) for line in lines)


def _confirmed(line: Line, other: Line) -> Line:
    products = line.products
    if len(products) == len(other.products):
        products = tuple(map(_of_product, products, other.products))
    return replace(line, shape=_of_shape(line.shape, other.shape), products=products)


def _of_product(product: Product, other: Product) -> Product:
    return replace(product, left=_of_shape(product.left, other.left), right=_of_shape(product.right, other.right))


def _of_shape(shape: Shape, other: Shape) -> Shape:
    """A shape of as many axes as the other, by the names that they have in common; else as it is."""
    return Shape(tuple(_in_common(shape, other)), shape.sizes) if len(shape.axes) == len(other.axes) else shape


def _in_common(shape: Shape, other: Shape) -> Iterator[str]:
    for axis, size, name in zip(shape.axes, shape.sizes, other.axes, strict=True):
        yield axis if axis == name else str(size)
