"""Known: an array of an attention as a whole, and where on it an array of the script stands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Literal

import numpy as np

from qkv.recognition.arrangement import REPEATED, arrangements, collapsed
from qkv.vocabulary import HIDDEN_BELOW

Array = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["tokens", "matrix", "scores", "weights", "context", "mask"]

CLOSE = 3e-5
"""Share of the largest entry by which equal values may differ: scripts compute in float32."""

MOST_PLACES = 4096
"""Rows of a known array that one of the script's is compared with."""


@dataclass(frozen=True, eq=False)
class Known:
    """One array of an attention, whole, even where the script makes a part of it.

    Attributes:
        kind: what it is.
        axes: names of its axes: ``("batch", "head", "query", "key")``.
        array: its values.
        move: how it was made of its sources: ``project``, ``product``, ``scale``, ``mask``, ``softmax``, ``mix``.
        sources: the known arrays that it was made of.
        slip: the fault in that move, by its id; empty where a right attention makes it too.
        number: the factor of ``scale``, the probability of ``drop``, the fill of ``mask``.
        visible: of a mask: where it lets through.
        over: of ``mix``: the axis of the weights that is summed over; of ``softmax``: the one that sums to one; of
            ``project``: the axis of the matrix that is summed over, by the name that it has there.
        made: number of the operation that made it first; -1 where none did.
        role: of tokens: ``query``, ``key`` or ``value``, by their names; empty where they don't say.
    """

    kind: Kind
    axes: tuple[str, ...]
    array: Array
    move: str
    sources: tuple[Known, ...] = ()
    slip: str = ""
    number: float = 1.0
    visible: Array | None = None
    over: str = ""
    made: int = -1
    role: str = ""

    def chain(self) -> Iterator[Known]:
        """This one and all that it was made of, the latest first."""
        yield self
        for source in self.sources:
            yield from source.chain()

    def first(self, *moves: str) -> Known | None:
        """The latest in the chain that was made by one of these moves."""
        return next((one for one in self.chain() if one.move in moves), None)


@dataclass(frozen=True, eq=False)
class Sight:
    """What an array of the script is.

    Attributes:
        known: the whole that it is, or is a part of.
        axes: names of its axes in its own order.
        fixed: where on the axes that it lacks it stands: ``{"token": 1}``.
        index: where each of its entries stands in the known array, laid flat.
    """

    known: Known
    axes: tuple[str, ...]
    fixed: Mapping[str, int] = field(default_factory=dict)
    index: Array = field(default_factory=lambda: np.zeros(0, int))

    @property
    def token(self) -> int | None:
        """The one token that it belongs to, counted from 0; None where it belongs to all."""
        return next((self.fixed[axis] for axis in ("query", "token") if axis in self.fixed), None)


def close(left: Array, right: Array) -> bool:
    """Whether two arrays hold the same values up to rounding, infinities and NaN included."""
    if left.shape != right.shape:
        return False
    if not left.size:
        return True
    left, right = left.astype(float), right.astype(float)
    # Next to scores from which 1e9 was taken off, all others would look the same.
    usual = np.isfinite(right) & (right > HIDDEN_BELOW)
    scale = float(np.abs(right[usual]).max(initial=0.0)) if usual.any() else 0.0
    with np.errstate(invalid="ignore"):
        if not (np.abs(left - right)[usual] <= CLOSE * scale + 1e-12).all():
            return False
    left, right = left[~usual], right[~usual]
    near = np.isclose(left, right, rtol=0, atol=CLOSE * scale + 1e-12, equal_nan=True)
    return bool((near | np.isclose(left, right, rtol=CLOSE, equal_nan=True)).all())


def sight_of(array: Array, known: Known, likely: Sequence[int] = ()) -> Sight | None:
    """Where an array stands in a known one, its axes in any order and grouping; None where it doesn't.

    An array of fewer axes is looked for at every place of those that it lacks, and a first one is taken.

    Args:
        array: what is looked for.
        known: where.
        likely: tokens that are looked at first: a word that comes twice in a sentence has the same numbers twice.
    """
    return next(sights_of(array, [known], likely), None)


def sights_of(array: Array, knowns: Iterable[Known], likely: Sequence[int] = ()) -> Iterator[Sight]:
    """Where an array stands in each of some known ones, as in `sight_of`; those in which it doesn't are left out."""
    if array.size < 2 or array.dtype.kind not in "fiub":
        return
    small, kept = collapsed(array)
    for known in knowns if small.ndim else ():
        found = _place_of(small, known, likely)
        if found is not None:
            fixed, index, names = found
            own = np.broadcast_to(index.reshape(_spread(array.ndim, kept, small.shape)), array.shape)
            by_axis = dict(zip(kept, names, strict=True))
            yield Sight(known, tuple(by_axis.get(axis, REPEATED) for axis in range(array.ndim)), fixed, own)


def _place_of(
    small: Array, known: Known, likely: Sequence[int]
) -> tuple[dict[str, int], Array, tuple[str, ...]] | None:
    """Which places of a known array are fixed where another one stands in it, its entries there, and its axes."""
    for fixed in _fixings(known, small.size, likely):
        place = tuple(fixed.get(axis, slice(None)) for axis in known.axes)
        axes = tuple(axis for axis in known.axes if axis not in fixed)
        part = known.array[place]
        for index, names in arrangements(part.shape, axes, small.shape):
            if close(part.reshape(-1)[index], small):
                flat = np.arange(known.array.size).reshape(known.array.shape)[place].reshape(-1)
                return fixed, flat[index], names
    return None


def _spread(ndim: int, kept: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    by_axis = dict(zip(kept, sizes, strict=True))
    return tuple(by_axis.get(axis, 1) for axis in range(ndim))


def _fixings(known: Known, size: int, likely: Sequence[int]) -> Iterator[dict[str, int]]:
    """The places that leave so many entries: none of its axes fixed first, likely tokens before others."""
    tried = 0
    for number in range(len(known.axes)):
        for axes in combinations(range(len(known.axes)), number):
            sizes = [known.array.shape[axis] for axis in axes]
            if known.array.size // max(math.prod(sizes), 1) != size:
                continue
            first = [likely if known.axes[axis] in ("token", "query") else () for axis in axes]
            for place in product(*(_places(*one) for one in zip(sizes, first, strict=True))):
                tried += 1
                if tried > MOST_PLACES:
                    return
                yield {known.axes[axis]: at for axis, at in zip(axes, place, strict=True)}


def _places(size: int, likely: Sequence[int]) -> Sequence[int]:
    return (
        [*dict.fromkeys([place for place in likely if 0 <= place < size] + [*range(size)])] if likely else range(size)
    )
