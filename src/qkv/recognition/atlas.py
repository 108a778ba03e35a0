"""Atlas: known arrays laid out for looking up. Which of them has an array's values, in any order of its axes?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from qkv.oracle.inputs import Array
from qkv.recognition.arrangement import REPEATED, Names, arrangements, collapsed
from qkv.recognition.known import LOW, Known

MOST_ELEMENTS = 1 << 20
"""An array of more entries is not looked up."""

ONE_BY_ONE = frozenset({"batch", "head", "query", "key"})
"""Axes whose entries people treat one by one, in loops: sequences, heads, tokens; not channels."""


@dataclass(frozen=True)
class Found:
    """A known array that has the values.

    Attributes:
        known: the array.
        axes: the names of the axes of what was looked up; empty where the values are there in no order of whole axes.
        fixed: of the known array's axes that what was looked up lacks, where on them it stands.
        factor: what the known array is multiplied by.
        hides: whether some entries are hidden.
    """

    known: Known
    axes: Names
    fixed: Mapping[str, int] = field(default_factory=dict)
    factor: float = 1.0
    hides: bool = False


@dataclass(frozen=True)
class _Sheet:
    """A known array's parts of one size: all that there are when some axes are fixed.

    Attributes:
        known: the array.
        axes: names of the axes that are left.
        shape: their sizes.
        fixed: names and sizes of the others.
        parts: ``(part, entry)``.
        hidden: ``(part, mask, entry)``: what each known mask hides of a part; None where nothing may be hidden.
    """

    known: Known
    axes: Names
    shape: tuple[int, ...]
    fixed: Mapping[str, int]
    parts: Array
    hidden: Array | None

    @cached_property
    def ordered(self) -> Array:
        """The parts' entries by size."""
        return np.sort(self.parts, axis=1)

    @cached_property
    def sizes(self) -> Array:
        """Each part's largest entry: of exponentials one part may be beyond all others."""
        return np.abs(np.where(np.isfinite(self.parts), self.parts, 0.0)).max(axis=1, initial=1e-30)

    @cached_property
    def lengths(self) -> Array:
        """Each part's length as a vector."""
        return np.linalg.norm(self.parts, axis=1)

    def place(self, part: int) -> dict[str, int]:
        """Where on the fixed axes a part stands."""
        at = np.unravel_index(part, tuple(self.fixed.values())) if self.fixed else ()
        return {**self.known.fixed, **{axis: int(index) for axis, index in zip(self.fixed, at, strict=True)}}


@dataclass(frozen=True)
class _Shelf:
    """All sheets of one size.

    Attributes:
        sheets: the sheets.
    """

    sheets: list[_Sheet] = field(default_factory=list)

    @cached_property
    def rows(self) -> list[tuple[_Sheet, float, int]]:
        """Each part of each sheet times each factor that it may have."""
        return [
            (sheet, factor, part)
            for sheet in self.sheets
            for factor in sheet.known.factors
            for part in range(len(sheet.parts))
        ]

    @cached_property
    def ends(self) -> Array:
        """Smallest and largest entry of each row, and how far off they may be, ``(3, row)``."""
        columns = [np.empty((3, 0))]
        for sheet in self.sheets:
            for factor in sheet.known.factors:
                ends = sheet.ordered[:, [0, -1] if factor > 0 else [-1, 0]].T * factor
                columns.append(np.concatenate([ends, sheet.sizes[None] * abs(factor)]))
        return np.concatenate(columns, axis=1)

    @cached_property
    def directions(self) -> tuple[list[tuple[_Sheet, int]], Array]:
        """Each part that is no zeros, and the ends of `ends` of it at length one."""
        parts, columns = [], [np.empty((3, 0))]
        for sheet in self.sheets:
            chosen = np.flatnonzero((sheet.lengths > 0) & np.isfinite(sheet.lengths))
            parts += [(sheet, int(part)) for part in chosen]
            ends = [sheet.ordered[chosen, 0], sheet.ordered[chosen, -1], sheet.sizes[chosen]]
            columns.append(np.stack(ends) / sheet.lengths[chosen])
        return parts, np.concatenate(columns, axis=1)

    def parallel(self, ordered: Array, closeness: float) -> Iterator[tuple[_Sheet, int]]:
        """The parts that these ordered entries of length one are a multiple of, up to their order."""
        parts, (smallest, largest, sizes) = self.directions
        alike = _close(smallest, ordered[0], closeness * sizes) & _close(largest, ordered[-1], closeness * sizes)
        for row in np.flatnonzero(alike):
            sheet, part = parts[row]
            if _close(sheet.ordered[part] / sheet.lengths[part], ordered, closeness * sizes[row]).all():
                yield sheet, part

    def like(self, ordered: Array, closeness: float) -> Iterator[tuple[_Sheet, float, int]]:
        """The rows that begin and end as these ordered entries do: that alone rules most out."""
        smallest, largest, sizes = self.ends
        alike = _close(smallest, ordered[0], closeness * sizes) & _close(largest, ordered[-1], closeness * sizes)
        yield from (self.rows[row] for row in np.flatnonzero(alike))


class Atlas:
    """Known arrays by the size of their parts.

    Args:
        knowns: the arrays.
        masks: where known masks allow a key, ``(batch, head, query, key)`` each, the whole mask first.
        closeness: how far apart equal values may be, as a share of the largest entry.
    """

    def __init__(self, knowns: Iterable[Known], masks: Sequence[Array], closeness: float) -> None:
        self._closeness = closeness
        self._shelves: dict[int, _Shelf] = {}
        for known in knowns:
            for sheet in _sheets(known, masks):
                self._shelves.setdefault(sheet.parts.shape[1], _Shelf()).sheets.append(sheet)

    def find(self, array: Array) -> Iterator[Found]:
        """Every known array that an array is, also up to the factors that a right one may have."""
        small, kept = collapsed(array)
        shelf = self._shelves.get(small.size)
        if small.size < 2 or small.size > MOST_ELEMENTS or shelf is None:
            return
        small = small.astype(np.float64)
        low = small <= LOW
        hides = bool(low.any())
        bottom = np.where(low, -np.inf, small)
        for sheet, factor, part in shelf.like(np.sort(bottom, axis=None), self._closeness):
            if not (hides and sheet.hidden is not None):
                for names in self._equal(sheet, part, bottom / factor):
                    yield Found(sheet.known, _spread(names, kept, array.ndim), sheet.place(part), factor, hides)
        for sheet in shelf.sheets if hides else ():
            for factor in sheet.known.factors if sheet.hidden is not None else ():
                for part, names in self._hiding(sheet, small / factor, low):
                    yield Found(sheet.known, _spread(names, kept, array.ndim), sheet.place(part), factor, hides)

    def multiple(self, array: Array) -> Found | None:
        """The known array that an array is a multiple of, whatever the factor; None where there is none."""
        small, kept = collapsed(array)
        if small.size < 8 or small.size > MOST_ELEMENTS or not np.isfinite(small).all():
            return None
        small = small.astype(np.float64)
        ordered, length = np.sort(small, axis=None), float(np.linalg.norm(small))
        if length == 0:
            return None
        shelf = self._shelves.get(small.size, _Shelf())
        for sign, entries in ((1, ordered), (-1, -ordered[::-1])):
            for sheet, part in shelf.parallel(entries / length, self._closeness):
                factor = sign * length / float(sheet.lengths[part])
                for names in self._arranged(sheet, part, small / factor):
                    return Found(sheet.known, _spread(names, kept, array.ndim), sheet.place(part), factor)
        return None

    def _equal(self, sheet: _Sheet, part: int, small: Array) -> list[Names]:
        """The orders of axes in which an array is a part of a sheet: one of no axes if it has its entries in none."""
        bar = self._closeness * sheet.sizes[part]
        if not _close(sheet.ordered[part], np.sort(small, axis=None), bar).all():
            return []
        return self._arranged(sheet, part, small) or [()]

    def _arranged(self, sheet: _Sheet, part: int, small: Array) -> list[Names]:
        bar = self._closeness * sheet.sizes[part]
        return [
            names
            for index, names in arrangements(sheet.shape, sheet.axes, small.shape)
            if np.allclose(sheet.parts[part][index], small, rtol=0.0, atol=bar, equal_nan=True)
        ]

    def _hiding(self, sheet: _Sheet, small: Array, low: Array) -> Iterator[tuple[int, Names]]:
        """The parts that are equal wherever nothing is hidden, and of which known masks hide just what is hidden."""
        assert sheet.hidden is not None
        for index, names in arrangements(sheet.shape, sheet.axes, small.shape):
            for part, (entries, bar) in enumerate(zip(sheet.parts, self._closeness * sheet.sizes, strict=True)):
                if (np.abs(entries[index] - small)[~low] <= bar).all() and _hidden(sheet.hidden[part][:, index], low):
                    yield part, names


def _close(known: Array, entries: Array, bar: Array) -> Array:
    """Where entries are equal: within the bar, both infinite, or both no number."""
    with np.errstate(invalid="ignore"):
        return (np.abs(known - entries) <= bar) | (known == entries) | (np.isnan(known) & np.isnan(entries))


def _hidden(masks: Array, low: Array) -> bool:
    """Whether what is low is what some of the masks hide together, none of it allowed by the first, the whole one."""
    if not masks[0][low].all():
        return False
    together = np.zeros_like(low)
    for mask in masks:
        if not mask[~low].any():
            together |= mask
    return bool((together == low).all())


def _sheets(known: Known, masks: Sequence[Array]) -> Iterator[_Sheet]:
    """A known array whole, and in parts along each choice of its axes; what repeats itself, once and repeated."""
    array = np.asarray(known.array, dtype=np.float64)
    small, kept = collapsed(array)
    yield from _parts(known, small, tuple(known.axes[axis] for axis in kept), masks)
    long = tuple(axis for axis in range(array.ndim) if array.shape[axis] > 1)
    if len(long) > len(kept):
        whole = array.reshape([array.shape[axis] for axis in long])
        yield from _parts(known, whole, tuple(known.axes[axis] for axis in long), masks)


def _parts(known: Known, array: Array, names: Names, masks: Sequence[Array]) -> Iterator[_Sheet]:
    hidden = None
    if known.maskable and masks and array.size == np.size(known.array):
        hidden = np.stack([np.broadcast_to(~mask, np.shape(known.array)).reshape(array.shape) for mask in masks])
    for count in range(1 if known.whole else array.ndim):
        for fixed in combinations(range(array.ndim), count):
            rest = [axis for axis in range(array.ndim) if axis not in fixed]
            if known.along and known.along not in {names[axis] for axis in rest}:
                continue
            if not all(names[axis] in ONE_BY_ONE for axis in fixed):
                continue
            shape = tuple(array.shape[axis] for axis in rest)
            entries = int(np.prod(shape))
            apart = None
            if hidden is not None:
                apart = hidden.transpose([*(1 + axis for axis in fixed), 0, *(1 + axis for axis in rest)])
                apart = apart.reshape(-1, len(masks), entries)
            yield _Sheet(
                known,
                tuple(names[axis] for axis in rest),
                shape,
                {names[axis]: array.shape[axis] for axis in fixed},
                array.transpose([*fixed, *rest]).reshape(-1, entries),
                apart,
            )


def _spread(names: Names, kept: Sequence[int], ndim: int) -> Names:
    """The names for all axes of the array, those included along which it does not change."""
    if not names:
        return ()
    by_axis = dict(zip(kept, names, strict=True))
    return tuple(by_axis.get(axis, REPEATED) for axis in range(ndim))
