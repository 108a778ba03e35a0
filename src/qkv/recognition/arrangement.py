"""Arrangement: an array's axes named, by finding the order and grouping in which a known array has its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from qkv.oracle.inputs import Array

REPEATED = "·"
"""The name of an axis along which nothing changes: one that was broadcast, or has one entry."""

Shape = tuple[int, ...]
Names = tuple[str, ...]


def collapsed(array: Array) -> tuple[Array, tuple[int, ...]]:
    """The array without the axes along which it does not change, and which axes are left."""
    kept = []
    same_as_itself = {"equal_nan": array.dtype.kind == "f"}
    for axis in range(array.ndim):
        if array.shape[axis] == 0:
            kept.append(axis)
            continue
        first = np.take(array, [0], axis=axis)
        if array.shape[axis] == 1 or np.array_equal(array, np.broadcast_to(first, array.shape), **same_as_itself):
            array = first
        else:
            kept.append(axis)
    return array.reshape([array.shape[axis] for axis in kept]), tuple(kept)


@lru_cache(maxsize=4096)
def arrangements(known: Shape, axes: Names, shape: Shape) -> list[tuple[Array, Names]]:
    """The ways in which a known array's whole axes, in some order, make up a shape.

    Ways that are none are left out: a tensor merged by a view has the values in the right order of memory, and its axes
    are no groups of the known ones.

    Args:
        known: sizes of the known array's axes.
        axes: their names.
        shape: the shape that they are to be brought into.

    Returns:
        for each way the flat indices into the known array, in ``shape``, and the names of the axes of ``shape``.
    """
    if math.prod(shape) != math.prod(known):
        return []
    index = np.arange(math.prod(known)).reshape(known)
    ways = []
    for order in permutations(range(len(known))):
        names = grouping([known[axis] for axis in order], shape, [axes[axis] for axis in order])
        if names is not None:
            ways.append((index.transpose(order).reshape(shape), names))
    return ways


def grouping(sizes: Sequence[int], shape: Sequence[int], axes: Sequence[str]) -> Names | None:
    """The names of a shape's axes, made of whole axes of these sizes, or of parts of one; None where they don't fit.

    ``(2, 6, 7, 8)`` as ``(2, 7, 48)`` is none; as ``(2, 2, 3, 7, 8)`` it has the head's axis in two parts.
    """
    ends, bounds = _ends(sizes), _ends(shape)
    every = sorted({*ends, *bounds})
    if any(later % earlier for earlier, later in zip([1, *every], every, strict=False)):
        return None
    starts, names = [1, *ends[:-1]], []
    for first, last in zip([1, *bounds[:-1]], bounds, strict=True):
        inside = [
            axis if first <= start and end <= last else f"{axis} part"
            for axis, start, end in zip(axes, starts, ends, strict=True)
            if start < last and end > first
        ]
        names.append("*".join(inside) or REPEATED)
    return tuple(names)


def _ends(sizes: Sequence[int]) -> list[int]:
    """Product of the sizes up to and with each."""
    ends, product = [], 1
    for size in sizes:
        product *= size
        ends.append(product)
    return ends
