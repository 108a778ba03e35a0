"""Clash: an operation whose arrays don't fit together, in words: operand, axis, and what to write instead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qkv.shapes.axes import Axes


@dataclass(frozen=True)
class Operand:
    """One array of an operation that failed.

    Attributes:
        code: how it is written: ``keys.transpose(1, 2)``.
        sizes: its shape.
    """

    code: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Clash:
    """An operation that failed.

    Attributes:
        place: where it stands: ``attention.py:23``.
        code: the expression: ``attn_weights @ values``.
        operation: what was called: ``matmul``, ``add``, ``view``, ``module``.
        operands: its arrays.
        numbers: its whole numbers: the sizes given to a view, the axes given to a transpose.
        target: what it assigns to, where it takes a shape apart: ``b, t, c``.
    """

    place: str
    code: str
    operation: str
    operands: tuple[Operand, ...]
    numbers: tuple[int, ...] = ()
    target: str = ""


def explain_clash(clash: Clash, axes: Axes) -> str:
    """Why the operation is impossible and what may be meant, in a sentence or two; empty where shapes aren't why.

    Args:
        clash: the operation.
        axes: names of the sizes; without any the sizes stand alone.
    """
    explain = _KINDS.get(clash.operation)
    said = explain(clash, axes) if explain is not None and clash.operands else ""
    return f"{clash.place}: {clash.code}: {said}" if said else ""


# --- products ---------------------------------------------------------------------------------------------------------


def _product(clash: Clash, axes: Axes) -> str:
    if len(clash.operands) < 2:
        return ""
    left, right = clash.operands[-2:]
    if min(len(left.sizes), len(right.sizes)) < 1 or multiplies(left.sizes, right.sizes):
        return ""
    why = _why_no_product(left, right, axes)
    return f"{_shown(left, axes)} @ {_shown(right, axes)}: {why}{_instead(left, right, axes)}"


def _why_no_product(left: Operand, right: Operand, axes: Axes) -> str:
    inner, rows = left.sizes[-1], right.sizes[-2] if len(right.sizes) > 1 else right.sizes[0]
    if inner != rows:
        place = "second-last axis of the second" if len(right.sizes) > 1 else "axis of the second"
        return (
            f"the last axis of the first, {_said(inner, axes)}, must be as long as the {place}, {_said(rows, axes)}: "
            "each number of a row of the first meets one number of a column of the second"
        )
    return f"all axes before the last two must be the same, {_differing(left.sizes[:-2], right.sizes[:-2], axes)}"


def _instead(left: Operand, right: Operand, axes: Axes) -> str:
    """What makes the product possible: heads that are split off, or a turn of one of the two."""
    for one, other in ((right, left), (left, right)):
        if axes.name(one.sizes[-1]).startswith("heads*") and len(other.sizes) == len(one.sizes) + 1:
            return (
                f". Is {one.code} still to be split into heads: .view(batch, tokens, heads, head_dim).transpose(1, 2)?"
            )
    for first, second in _turns(len(right.sizes)):
        if multiplies(left.sizes, _swapped(right.sizes, first, second)):
            return f". Did you forget {right.code}.transpose({first}, {second})?"
    for first, second in _turns(len(left.sizes)):
        if multiplies(_swapped(left.sizes, first, second), right.sizes):
            return f". Did you forget {left.code}.transpose({first}, {second})?"
    return ""


def multiplies(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether arrays of these shapes have a matrix product."""
    if len(left) == 1 or len(right) == 1:
        return left[-1] == (right[-2] if len(right) > 1 else right[0])
    return left[-1] == right[-2] and broadcasts(left[:-2], right[:-2])


def _turns(axes: int) -> list[tuple[int, int]]:
    """Pairs of axes to exchange, the usual one first; of four axes the first is the batch and stays."""
    pairs = itertools.combinations(range(axes > 3, axes), 2)
    return [(-2, -1), *pairs] if axes > 1 else []


def _swapped(sizes: Sequence[int], first: int, second: int) -> tuple[int, ...]:
    turned = list(sizes)
    turned[first], turned[second] = turned[second], turned[first]
    return tuple(turned)


# --- element by element -----------------------------------------------------------------------------------------------


def _elementwise(clash: Clash, axes: Axes) -> str:
    for one, other in itertools.combinations(clash.operands, 2):
        if not broadcasts(one.sizes, other.sizes):
            why = f"{_shown(one, axes)} and {_shown(other, axes)} are put together number by number, "
            return f"{why}{_differing(one.sizes, other.sizes, axes)}{_cut(one, other, axes) or _cut(other, one, axes)}"
    return ""


def broadcasts(*shapes: Sequence[int]) -> bool:
    """Whether arrays of these shapes can be put together element by element."""
    columns = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return all(len(set(column) - {1}) < 2 for column in columns)


def _differing(one: Sequence[int], other: Sequence[int], axes: Axes) -> str:
    """The first axis, from the right, at which two shapes differ and neither is 1."""
    for place, (here, there) in enumerate(zip(reversed(one), reversed(other), strict=False), 1):
        if here != there and 1 not in (here, there):
            counted = {1: "the last axis", 2: "the second-last axis", 3: "the third-last axis"}
            where = counted.get(place, f"axis -{place}")
            return f"and {where} is {_said(here, axes)} in the first and {_said(there, axes)} in the second"
    return "and their numbers of axes differ"


def _cut(large: Operand, small: Operand, axes: Axes) -> str:
    """The hint for a square table made for the longest sequence: a mask that was not cut."""
    size, wanted = large.sizes[-2:], small.sizes[-2:]
    if len(size) == len(wanted) == 2 and size[0] == size[1] > max(wanted) and min(wanted) > 1:
        if axes.name(wanted[0]) == "context_length":
            return f". {small.code} was made for {wanted[0]} tokens at most, and these are {size[0]}"
        front = ", ".join([":"] * (len(large.sizes) - 2) + [f":{axes.name(size)}" for size in wanted])
        return f". Was it made for the longest sequence? Cut it: {large.code}[{front}]"
    return ""


# --- other kinds ------------------------------------------------------------------------------------------------------


def _view(clash: Clash, axes: Axes) -> str:
    array, wanted = clash.operands[0], clash.numbers
    have, known = math.prod(array.sizes), math.prod(size for size in wanted if size >= 0)
    asked = f"({' '.join('...' if size < 0 else axes.name(size) for size in wanted)})"
    numbers = f"({' x '.join('...' if size < 0 else str(size) for size in wanted)})"
    start = f"{_shown(array, axes)} has {have} numbers"
    if not wanted or not known:
        return ""
    if -1 in wanted and have % known:
        return f"{start}, which can't be shared out as {asked} {numbers}: {have} is no multiple of {known}"
    if -1 not in wanted and have != known:
        return f"{start}, and {asked} {numbers} takes {known}{_dropped(array.sizes, wanted)}"
    if clash.operation == "view":
        return (
            f"{_shown(array, axes)} doesn't lie in memory in the order of its axes (a transpose changes only the order "
            "that it is read in), so it has no view of another shape. Write .reshape, or .contiguous() before .view"
        )
    return ""


def _dropped(sizes: Sequence[int], wanted: Sequence[int]) -> str:
    """What a floor division left over, where the last axis is what was split."""
    width, split = sizes[-1], math.prod(wanted[len(sizes) - 1 :])
    if wanted[: len(sizes) - 1] == tuple(sizes[:-1]) and 0 < split < width:
        return f": {width - split} of {width} channels are left over, so {width} must be a multiple of the heads"
    return ""


def _module(clash: Clash, axes: Axes) -> str:
    array, weight = clash.operands[0], clash.operands[-1]
    if len(weight.sizes) != 2 or array is weight or not array.sizes or array.sizes[-1] == weight.sizes[1]:
        return ""
    return (
        f"{_shown(array, axes)} has {_said(array.sizes[-1], axes)} as its last axis, and "
        f"{weight.code.removesuffix('.weight')} takes {_said(weight.sizes[1], axes)} channels"
    )


def _axis(clash: Clash, axes: Axes) -> str:
    array = clash.operands[0]
    count = len(array.sizes)
    beyond = [number for number in clash.numbers if not -count <= number < count]
    if not beyond:
        if clash.operation == "permute" and len(clash.numbers) != count:
            return f"{_shown(array, axes)} has {count} axes, and {len(clash.numbers)} are put in order"
        return ""
    split = ". Is it still to be split into heads?" if axes.name(array.sizes[-1]).startswith("heads*") else ""
    return f"{_shown(array, axes)} has {count} axes, 0 to {count - 1}, so there is no axis {beyond[0]}{split}"


def _unpacking(clash: Clash, axes: Axes) -> str:
    array = clash.operands[0]
    count = len(clash.target.split(","))
    if count == len(array.sizes):
        return ""
    return f"{_shown(array, axes)} has {len(array.sizes)} axes, and {clash.target!r} takes {count}"


def _listed(clash: Clash, axes: Axes) -> str:
    return ", ".join(_shown(operand, axes) for operand in clash.operands)


def _shown(operand: Operand, axes: Axes) -> str:
    """``values (batch tokens heads head_dim) = (2 x 7 x 5 x 34)``; without names the numbers alone."""
    shape = axes.shape(operand.sizes)
    return f"{operand.code} {f'{shape.names} = ' if axes.sizes else ''}{shape.numbers}"


def _said(size: int, axes: Axes) -> str:
    name = axes.name(size)
    return str(size) if name == str(size) else f"{name} = {size}"


_KINDS: Mapping[str, Callable[[Clash, Axes], str]] = {
    **dict.fromkeys(("matmul", "bmm", "dot", "mm"), _product),
    **dict.fromkeys(("add", "sub", "mul", "div", "where", "masked_fill"), _elementwise),
    **dict.fromkeys(("view", "reshape"), _view),
    **dict.fromkeys(("transpose", "swapaxes", "permute", "softmax"), _axis),
    "module": _module,
    "unpacking": _unpacking,
    **dict.fromkeys(("einsum", "cat", "stack", "concatenate", "other"), _listed),
}
"""How each operation is explained."""
