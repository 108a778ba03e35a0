"""What a recording's operations give, line by line: shapes by the names of their axes, and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qkv.adapters.names import call_role_of, projection_role
from qkv.adapters.recording import Operation, Recording, Ref
from qkv.shapes.axes import Axes
from qkv.shapes.product import Product, Shape
from qkv.shapes.sheet import Line

SIDES = ("query", "key")

AT_MOST = "≤"
"""Stands before an axis that is longer in one turn of a loop than in another: how long it is at most."""


def lines_of(recording: Recording, axes: Axes) -> tuple[Line, ...]:
    """What the code makes, one line for each expression that makes an array, in the order they are first reached.

    An expression that is reached several times, in a loop, stands for the largest array that it makes.
    """
    naming = _Naming(recording, axes)
    at: dict[int, list[tuple[str, Line]]] = {}
    for operation in recording.operations:
        naming.follow(operation)
        if operation.during == "call" and operation.place is not None:
            line = naming.line(operation)
            if line is not None:
                at.setdefault(operation.place, []).append((operation.name, line))
    return tuple(map(_largest, map(_given, at.values())))


def _given(made: Sequence[tuple[str, Line]]) -> list[Line]:
    """What an expression gives each time it is reached: the last of what a library's function makes on its way."""
    names = [name for name, _ in made]
    whole = len(names)
    period = next(one for one in range(1, whole + 1) if not whole % one and names == names[:one] * (whole // one))
    return [line for _, line in made[period - 1 :: period]]


def _largest(lines: Sequence[Line]) -> Line:
    """Of what one expression gives each time the largest, an axis that is not always as long marked as such."""
    largest = max(reversed(lines), key=lambda line: math.prod(line.shape.sizes))
    shapes = [line.shape.sizes for line in lines if len(line.shape.sizes) == len(largest.shape.sizes)]
    axes = [
        axis if {*sizes} == {size} else f"{AT_MOST}{axis}"
        for axis, size, sizes in zip(largest.shape.axes, largest.shape.sizes, zip(*shapes, strict=True), strict=True)
    ]
    return replace(largest, shape=Shape(tuple(axes), largest.shape.sizes))


class _Naming:
    """The axes of every value by name; of two axes of tokens, which are the queries' is followed through products."""

    def __init__(self, recording: Recording, axes: Axes) -> None:
        self._recording, self._axes = recording, axes
        self._roles: dict[int, str | None] = {
            number: _role_of(value.name) for number, value in enumerate(recording.values) if value.name
        }
        self._named: dict[int, Shape] = {}

    def shape(self, value: int) -> Shape:
        """The shape of a value."""
        return self._named.get(value) or self._axes.shape(self._recording.values[value].array.shape)

    def follow(self, operation: Operation) -> None:
        """Nothing; takes note of what an operation does to queries and keys."""
        operands = arrays_of(operation)
        for place, result in enumerate(operation.results):
            self._roles[result] = self._role(operation, place, operands)
            shape = self.shape(result)
            if shape.axes[-2:] != ("tokens", "tokens"):
                continue
            sides = self._sides(operation, operands, shape)
            if sides is not None:
                self._named[result] = Shape((*shape.axes[:-2], *sides), shape.sizes)

    def line(self, operation: Operation) -> Line | None:
        """What an operation gives; None where that is a single number."""
        assert operation.place is not None
        place = self._recording.places[operation.place]
        shape = self.shape(operation.results[0])
        if not shape.sizes:
            return None
        products = tuple(products_of(operation, [self.shape(one) for one in arrays_of(operation)]))
        times = math.prod(shape.sizes) // math.prod(products[-1].result.sizes) if products else 1
        code = " ".join(place.code.split())
        return Line(Path(place.file).name, place.line, code, place.makes, shape, products, times)

    def _role(self, operation: Operation, place: int, operands: Sequence[int]) -> str | None:
        """Whether a result is made for the query, the key or the value: by what it is called, or made of."""
        if operation.place is not None:
            targets = self._recording.places[operation.place].target.split(",")
            target = targets[place] if len(targets) == len(operation.results) else ""
            if (role := _role_of(target.strip())) is not None:
                return role
        if operation.name == "linear" and len(operands) > 1:
            operands = operands[1:]
        return next((role for one in operands[:1] if (role := self._roles.get(one))), None)

    def _sides(self, operation: Operation, operands: Sequence[int], shape: Shape) -> tuple[str, str] | None:
        """What the rows and the columns of a square result are."""
        if operation.name in ("matmul", "einsum") and len(operands) > 1:
            turned = self._roles.get(operands[0]) == "key" or self._roles.get(operands[1]) == "query"
            return ("key", "query") if turned else ("query", "key")
        for one in operands:
            axes = self.shape(one).axes[-2:]
            if set(axes) == set(SIDES):
                turned = operation.name in ("transpose", "permute", "T", "mT", "t")
                return (axes[1], axes[0]) if turned else (axes[0], axes[1])
        return None


def arrays_of(operation: Operation) -> list[int]:
    """The numbers of an operation's arrays, in the order they stand."""

    def inside(value: Any) -> Iterator[int]:
        if isinstance(value, Ref):
            yield value.value
        elif isinstance(value, Mapping):
            for one in value.values():
                yield from inside(one)
        elif isinstance(value, list | tuple):
            for one in value:
                yield from inside(one)

    return list(inside([*operation.arguments, *operation.keywords.values()]))


def _role_of(name: str) -> str | None:
    """``query``, ``key`` or ``value``, by a name such as ``self.W_query.weight`` or ``queries``."""
    last = name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
    role = call_role_of(last)
    if role in ("query", "key", "value"):
        return role
    return {"q": "query", "k": "key", "v": "value"}.get(projection_role(last) or "")


# --- products ---------------------------------------------------------------------------------------------------------


def products_of(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    """The products of two matrices that an operation makes, of arrays of these shapes."""
    find = _PRODUCTS.get(operation.name)
    if find is not None and len(shapes) > 1:
        yield from (product for product in find(operation, shapes) if _is_whole(product))


def _is_whole(product: Product) -> bool:
    return product.left.sizes[1] == product.right.sizes[0]


def _matrix(left: Shape, right: Shape) -> Product:
    """The product of the last two axes of each; a vector is a row on the left and a column on the right."""
    rows = Shape(left.axes[-2:], left.sizes[-2:]) if len(left.sizes) > 1 else Shape(("1", *left.axes), (1, *left.sizes))
    columns = (
        Shape(right.axes[-2:], right.sizes[-2:])
        if len(right.sizes) > 1
        else Shape((*right.axes, "1"), (*right.sizes, 1))
    )
    return Product(*_told_apart(rows, columns))


def _told_apart(rows: Shape, columns: Shape) -> tuple[Shape, Shape]:
    """The two with queries and keys by name, where both count the same tokens."""
    inner, sides = rows.axes[1], (rows.axes[0], columns.axes[1])
    if sides == ("tokens", "tokens"):
        rows, columns = Shape(("query", inner), rows.sizes), Shape((columns.axes[0], "key"), columns.sizes)
    if inner in SIDES and columns.axes[0] == "tokens":
        columns = Shape((inner, columns.axes[1]), columns.sizes)
    return rows, columns


def _matmul(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    if all(shape.sizes for shape in shapes[:2]):
        yield _matrix(shapes[0], shapes[1])


def _linear(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    if len(shapes[1].sizes) == 2:
        yield _matrix(shapes[0], shapes[1].turned)


def _added(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    """``addmm`` and ``baddbmm`` begin with what is added."""
    if len(shapes) > 2:
        yield from _matmul(operation, shapes[1:])


def _fused(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    """Scores and the mix of the values, in one call of query, key and value."""
    if len(shapes) > 2:
        query, key, value = shapes[:3]
        scores = _matrix(query, key.turned)
        yield scores
        yield _matrix(scores.result, value)


def _einsum(operation: Operation, shapes: Sequence[Shape]) -> Iterator[Product]:
    """The product of two matrices that an equation says: what stays of each, and what is summed over."""
    equation = operation.arguments[0] if operation.arguments else ""
    terms, arrow, output = str(equation).replace(" ", "").partition("->")
    left, comma, right = terms.partition(",")
    if not (arrow and comma) or "." in terms or len(left) != len(shapes[0].axes) or len(right) != len(shapes[1].axes):
        return
    summed = [letter for letter in left if letter in right and letter not in output]
    rows = [letter for letter in left if letter not in right and letter in output]
    columns = [letter for letter in right if letter not in left and letter in output]
    if len(summed) == 1 and rows and columns:
        yield _matrix(
            _picked(left, shapes[0], rows[-1] + summed[0]), _picked(right, shapes[1], summed[0] + columns[-1])
        )


def _picked(term: str, shape: Shape, letters: str) -> Shape:
    """The axes that these letters of an equation's term stand for."""
    places = [term.index(letter) for letter in letters]
    return Shape(tuple(shape.axes[place] for place in places), tuple(shape.sizes[place] for place in places))


_PRODUCTS: Mapping[str, Callable[[Operation, Sequence[Shape]], Iterator[Product]]] = {
    "matmul": _matmul,
    "dot": _matmul,
    "linear": _linear,
    "einsum": _einsum,
    "addmm": _added,
    "baddbmm": _added,
    "scaled_dot_product_attention": _fused,
}
"""The products that an operation makes."""
