"""Matrix products by the names of their axes: ``(query key)(key dim) -> (query dim)``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.errors import ShapeError


@dataclass(frozen=True)
class Shape:
    """The axes of an array: what each is called and how long it is.

    Attributes:
        axes: names, outermost first.
        sizes: lengths, in the same order.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def names(self) -> str:
        """``(query key)``."""
        return f"({' '.join(self.axes)})"

    @property
    def numbers(self) -> str:
        """``(3 x 3)``."""
        return f"({' x '.join(map(str, self.sizes))})"

    @property
    def turned(self) -> Shape:
        """The shape with its last two axes exchanged."""
        return Shape(
            (*self.axes[:-2], self.axes[-1], self.axes[-2]), (*self.sizes[:-2], self.sizes[-1], self.sizes[-2])
        )

    def __str__(self) -> str:
        return f"({', '.join(f'{axis} {size}' for axis, size in zip(self.axes, self.sizes, strict=True))})"


@dataclass(frozen=True)
class Product:
    """One matrix product. Each number of a left row meets one number of a right column, so the inner axes are the same.

    Attributes:
        makes: what the result is called.
        left: shape of the left matrix.
        right: shape of the right matrix.
        times: how often the product is made: once per sequence and head, where these are axes of their own.
    """

    left: Shape
    right: Shape
    makes: str = ""
    times: int = 1

    @property
    def result(self) -> Shape:
        """Shape of the result: the left one's rows, the right one's columns."""
        return Shape((self.left.axes[0], self.right.axes[1]), (self.left.sizes[0], self.right.sizes[1]))

    @property
    def names(self) -> str:
        """``(query key)(key dim) -> (query dim)``."""
        return f"{self.left.names}{self.right.names} -> {self.result.names}"

    @property
    def numbers(self) -> str:
        """``(3 x 3)(3 x 2) = (3 x 2)``."""
        return f"{self.left.numbers}{self.right.numbers} = {self.result.numbers}"

    @property
    def often(self) -> str:
        """``, 4 times``; empty for once."""
        return f", {self.times} times" if self.times > 1 else ""

    def __str__(self) -> str:
        return f"{self.names}, {self.numbers}"


def explain_matmul(
    left_axes: Sequence[str], left_sizes: Sequence[int], right_axes: Sequence[str], right_sizes: Sequence[int]
) -> Product:
    """The product of two matrices, in names and numbers.

    Args:
        left_axes: what rows and columns of the left matrix are, ``("query", "key")``.
        left_sizes: how many there are, ``(3, 3)``.
        right_axes: the same of the right matrix.
        right_sizes: the same of the right matrix.

    Raises:
        ShapeError: the inner axes differ in length, or are equally long by chance and mean different things. The
            message names the two axes and says which product is possible instead.
    """
    left, right = _matrix("left", left_axes, left_sizes), _matrix("right", right_axes, right_sizes)
    product = Product(left, right)
    inner, other = left.axes[1], right.axes[0]
    if left.sizes[1] != right.sizes[0]:
        why = (
            f"the left one's columns ({inner}, {left.sizes[1]}) must be as many as the right one's rows "
            f"({other}, {right.sizes[0]}), since each number of a left row meets one number of a right column"
        )
        raise ShapeError(
            f"{left.names}{right.names}, {left.numbers}{right.numbers}, is impossible: {why}. {_way_out(product)}"
        )
    if inner != other:
        why = f"the left one's columns are {inner}, the right one's rows {other}, and only their number agrees"
        raise ShapeError(
            f"{left.names}{right.names}, {left.numbers}{right.numbers}, has no meaning: {why}. {_way_out(product)}"
        )
    return product


def _matrix(side: str, axes: Sequence[str], sizes: Sequence[int]) -> Shape:
    if len(axes) != 2 or len(sizes) != 2:
        raise ShapeError(
            f"the {side} matrix has axes {tuple(axes)} and sizes {tuple(sizes)}; a product takes two of each, rows and "
            f'columns. Name the last two only, for instance ("query", "key"), (3, 3)'
        )
    return Shape(tuple(axes), tuple(sizes))


def _way_out(product: Product) -> str:
    """What to write instead: the arrangement with the fewest transposes whose inner axes agree in name and length."""
    sides = {"left": product.left, "right": product.right}
    orders = ("left", "right"), ("right", "left")
    turns = (False, False), (False, True), (True, False), (True, True)
    for (turn_a, turn_b), (a, b) in itertools.product(turns, orders):
        first, second = (sides[side].turned if turn else sides[side] for side, turn in ((a, turn_a), (b, turn_b)))
        if (first.axes[1], first.sizes[1]) == (second.axes[0], second.sizes[0]):
            return f"Write {a}{'.T' * turn_a} @ {b}{'.T' * turn_b}: {Product(first, second)}"
    axis = product.left.axes[1]
    if axis == product.right.axes[0]:
        return (
            f"Both are called {axis}, so one of them was made from other inputs: print the shapes where they are made"
        )
    return "No transpose of the two has an axis in common: make one of them anew, so that they share one"
