"""Sights: for every array that a candidate made, which array of an attention it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import numpy as np

from qkv.adapters.recording import Recording
from qkv.errors import ShapeError
from qkv.oracle import Run
from qkv.oracle.inputs import Array
from qkv.recognition.arrangement import REPEATED, Names, arrangements, collapsed
from qkv.recognition.atlas import Atlas, Found
from qkv.recognition.known import LOW, PAIRS, Known, knowns_of
from qkv.recognition.known_masks import KnownMask, masks_of
from qkv.recognition.known_norms import norm_knowns
from qkv.recognition.known_positions import position_knowns
from qkv.recognition.known_rows import cut, visible_stretches
from qkv.recognition.known_stretches import Stretches, stretched, stretched_masks, stretches_in
from qkv.vocabulary import Stage

Thing = TypeVar("Thing")

FUSED = "query, key and value"
"""The name of what a fused projection gives."""

IMPOSSIBLE = (ShapeError, ValueError, IndexError, KeyError, AttributeError, TypeError)
"""What making a known array raises where a fault has left no room for it."""


@dataclass(frozen=True)
class Sight:
    """What one array is.

    Attributes:
        name: the field's name: ``attn_scores``.
        stage: the stage that makes it; None for what is given, or made of positions alone.
        axes: names of its axes in its own order: ``("batch", "query", "head*dim")``; ``·`` for one along which nothing
            changes. Empty where its values are those of the name, in an order that no order of axes gives.
        fixed: where on the axes it lacks it stands: ``{"head": 2}``.
        factor: what it is multiplied by.
        right: whether an attention that is right may make it.
        form: of a mask: ``keep``, ``hide`` or ``additive``.
        stretch: of axes of which it is a stretch, from where on and up to where.
    """

    name: str
    stage: Stage | None
    axes: tuple[str, ...]
    fixed: Mapping[str, int] = field(default_factory=dict)
    factor: float = 1.0
    right: bool = True
    form: str = ""
    stretch: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def of(self) -> str:
        """What it is, or is a part of: ``key`` of ``key, first half``."""
        return self.name.partition(",")[0]

    @property
    def scrambled(self) -> bool:
        """Whether it has the right values in an order that is none of whole axes."""
        return not self.axes


@dataclass(frozen=True)
class Recognition:
    """What was recognised.

    Attributes:
        recording: the recording.
        sights: what each value is in the attention that is meant; None where nothing is known of it.
        faulty: what it is under a fault, where it isn't right.
        visible: the stretch of keys that each query is meant to see, by its number, where it sees some in one stretch.
        masks: the mask that is meant, and its parts, True = may attend.
    """

    recording: Recording
    sights: Sequence[Sight | None]
    faulty: Sequence[Sight | None]
    visible: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    masks: Sequence[Array] = ()

    def right(self, value: int) -> bool:
        """Whether a value was recognised as one that a right attention makes."""
        sight = self.sights[value]
        return sight is not None and sight.right


def recognise(recording: Recording, right: Run, faulty: Run | None = None, closeness: float = 1e-5) -> Recognition:
    """What every value of a recording is.

    Args:
        recording: what the candidate did.
        right: the oracle's run on the same inputs.
        faulty: its run under the fault that was diagnosed; None for none.
        closeness: how far apart equal values may be, as a share of the largest entry.
    """
    meant, other = _Book(right, closeness), None if faulty is None else _Book(faulty, closeness)
    sights: list[Sight | None] = []
    under_fault: list[Sight | None] = []
    known: dict[tuple[tuple[int, ...], bytes], tuple[Sight | None, Sight | None]] = {}
    for value in recording.values:
        key = (value.array.shape, value.array.tobytes())
        if key not in known:
            sight = meant.sight(value.array)
            wrong = other is not None and (sight is None or not sight.right or sight.scrambled)
            known[key] = sight, other.sight(value.array, multiples=False) if other is not None and wrong else None
        sights.append(known[key][0])
        under_fault.append(known[key][1])
    _ahead(recording, sights, meant, right)
    if other is not None:
        _ahead(
            recording, under_fault, other, right, {number for number, sight in enumerate(sights) if sight is not None}
        )
    axes = {number: sight.axes for number, sight in enumerate(sights) if sight is not None}
    stretches = stretches_in(recording, axes, right)
    if stretches is not None:
        _in_stretches(recording, sights, _Book(right, closeness, stretches))
        if faulty is not None:
            settled = {number for number, sight in enumerate(sights) if sight is not None and sight.right}
            _in_stretches(recording, under_fault, _Book(faulty, closeness, stretches), settled)
    return Recognition(recording, sights, under_fault, dict(visible_stretches(right)), meant.masks)


def _in_stretches(
    recording: Recording, sights: list[Sight | None], book: _Book, settled: Collection[int] | None = None
) -> None:
    """Puts in what values are of which nothing is known so far, by what is known of stretches of tokens.

    Args:
        recording: what the candidate did.
        sights: what each value is.
        book: what is known of the stretches.
        settled: under a fault, the values that are right.
    """
    for number, value in enumerate(recording.values):
        if sights[number] is None and number not in (settled or ()):
            sights[number] = book.sight(value.array, multiples=settled is None)


def _ahead(
    recording: Recording, sights: list[Sight | None], book: _Book, run: Run, settled: Collection[int] = ()
) -> None:
    """Puts in what tables are that were made ahead, for more tokens than there are: what their first rows are."""
    tokens = max(run.inputs.lengths)
    for number, value in enumerate(recording.values):
        if sights[number] is None and number not in settled and value.array.ndim and value.array.shape[0] > tokens:
            sight = book.sight(value.array[:tokens])
            if sight is not None and (sight.name.endswith(" of rope") or sight.name.startswith("positions of")):
                sights[number] = sight


class _Book:
    """All that is known of one run, or of stretches of its tokens, to look arrays up in."""

    def __init__(self, run: Run, closeness: float, stretches: Stretches | None = None) -> None:
        self._run = run
        knowns = list(
            _made(chain(_possible(position_knowns(run)), _possible(norm_knowns(run)), _possible(knowns_of(run))))
        )
        self._masks = list(_possible(masks_of(run)))
        masks = list(_possible(_as_pairs(run, self._masks)))
        if stretches is None:
            knowns += _possible(cut(knowns, run))
        else:
            knowns = list(_possible(stretched(knowns, run, stretches)))
            self._masks = list(stretched_masks(self._masks, stretches))
        self._atlas = Atlas(_unlike(knowns), masks, closeness)
        self._fused = _ordered_together(run)
        self._closeness = closeness
        self._squares: dict[int, list[KnownMask]] = {}

    def sight(self, array: Array, *, multiples: bool = True) -> Sight | None:
        """What an array is; None where nothing is known of it.

        Args:
            array: the array.
            multiples: whether it may also be what is known by a factor that no right attention has.
        """
        if array.dtype.kind == "c":
            parts = self.sight(np.stack([array.real, array.imag], axis=-1))
            return None if parts is None else replace(parts, axes=parts.axes[:-1])
        if array.dtype.kind not in "fiub" or array.size == 0:
            return None
        mask = self._mask(array)
        if mask is not None or array.dtype.kind == "b":
            return mask
        found = list(self._atlas.find(array))
        if found:
            best = min(found, key=_order)
            return _sight(best, right=bool(best.axes) and not any(map(_channels_first, best.axes)))
        if array.dtype.kind != "f":
            return None
        if self._fused is not None and array.size == self._fused.size:
            off = np.abs(np.sort(array, axis=None) - self._fused)
            if off.max() <= self._closeness * np.abs(self._fused).max():
                return Sight(FUSED, Stage.PROJECT, ("",) * array.ndim)
        multiple = self._atlas.multiple(array) if multiples else None
        return None if multiple is None else _sight(multiple, right=False)

    @property
    def masks(self) -> list[Array]:
        """The mask and its parts."""
        return [mask for _, _, mask in self._masks]

    def _mask(self, array: Array) -> Sight | None:
        for form, keeps in _as_booleans(array):
            for name, axes, known in self._known_masks(array.shape):
                names = _same_mask(keeps, known, axes)
                if names is not None:
                    return Sight(name, Stage.MASK, names, form=form)
        return None

    def _known_masks(self, shape: tuple[int, ...]) -> Iterator[KnownMask]:
        yield from self._masks
        if len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] not in self._run.inputs.lengths:
            square = shape[-1]
            if square not in self._squares:
                self._squares[square] = list(_possible(masks_of(self._run, square)))
            yield from self._squares[square]


def _channels_first(axis: str) -> bool:
    """Whether heads are merged the wrong way round: channel by channel, and not head by head."""
    inside = axis.split("*")
    return len(inside) > 1 and inside[-1] == "head" and inside[-2] in ("dim", "value dim")


def _as_pairs(run: Run, masks: Iterable[KnownMask]) -> Iterator[Array]:
    """Masks of the run's own lengths, for each pair of a query and a key."""
    for _, axes, mask in masks:
        yield np.broadcast_to(mask if axes == PAIRS else mask[:, None, None, :], run.scores.shape)


def _ordered_together(run: Run) -> Array | None:
    """All numbers of the projected query, key and value by size, as one fused projection gives them."""
    if run.inputs.parameters is None:
        return None
    given = run.before.get(Stage.HEADS)
    arrays = [] if given is None else [given.query, given.key, given.value]
    return np.sort(np.concatenate([np.ravel(array) for array in arrays])) if arrays else None


def _order(found: Found) -> tuple[object, ...]:
    """Which of several known arrays an array is: whole, as it is, its axes in the usual order, of the first stage."""
    canonical = tuple(axis for axis in found.known.axes if axis not in found.fixed)
    merged = any("*" in axis for axis in found.axes)
    stage = found.known.stage
    # Channels side by side are what a projection gives; once they stand in heads, the first stage that has them so.
    place = -1 if stage is None else stage.order if merged or stage != Stage.PROJECT else Stage.SCORES.order
    plain = tuple(axis for axis in found.axes if axis != REPEATED)
    return (not found.axes, found.factor != 1.0, len(found.fixed), plain != canonical, place)


def _sight(found: Found, *, right: bool) -> Sight:
    stage = Stage.MASK if found.hides else found.known.stage
    known = found.known
    return Sight(known.name, stage, found.axes, found.fixed, found.factor, right, stretch=known.stretch)


def _made(knowns: Iterable[Known]) -> Iterator[Known]:
    return (known for known in knowns if known.array is not None and np.size(known.array))


def _unlike(knowns: Iterable[Known]) -> Iterator[Known]:
    """The known arrays, one of those that have a name, axes and values in common."""
    seen: set[tuple[str, tuple[str, ...], bytes]] = set()
    for known in knowns:
        array = np.asarray(known.array, dtype=np.float64)
        key = (f"{known.name} {known.stage}", known.axes, array.tobytes())
        if array.ndim == len(known.axes) and key not in seen:
            seen.add(key)
            yield known


def _possible(things: Iterator[Thing]) -> Iterator[Thing]:
    """What can be made of them: a fault may leave no room for the rest."""
    with np.errstate(all="ignore"):
        while True:
            try:
                thing = next(things)
            except StopIteration:
                return
            except IMPOSSIBLE:
                return
            yield thing


def _as_booleans(array: Array) -> Iterator[tuple[str, Array]]:
    """The masks that an array of two values can stand for, True = may attend."""
    if array.dtype.kind == "b":
        yield "keep", array
        yield "hide", ~array
        return
    first = array.flat[0]
    if not np.isfinite(first) and first != -np.inf:
        return
    sample = array.reshape(-1)[:64]
    if len(np.unique(sample)) > 2 or len(values := np.unique(array)) != 2:
        return
    small, large = float(values[0]), float(values[1])
    if (small, large) == (0.0, 1.0):
        yield "keep", array == 1
        yield "hide", array == 0
    elif large == 0.0 and small <= LOW:
        yield "additive", array == 0
    elif small == 0.0 and large == np.inf:
        yield "hide", array == 0


def _same_mask(keeps: Array, known: Array, axes: Names) -> Names | None:
    """The names of a mask's axes where it is this one, an axis of one entry standing for all; None where it isn't."""
    small, kept = collapsed(keeps)
    if small.ndim == 0:  # one that hides nothing, or all
        alike = collapsed(known)[0]
        return (REPEATED,) * keeps.ndim if alike.ndim == 0 and alike == small else None
    for other, left in (collapsed(known), (known, tuple(range(known.ndim)))):
        for index, names in arrangements(other.shape, tuple(axes[axis] for axis in left), small.shape):
            # The other way round, the mask of the future is that of the past.
            last = kept[-1] == keeps.ndim - 1 and names[-1] == "key"
            if last and np.array_equal(other.reshape(-1)[index], small):
                by_axis = dict(zip(kept, names, strict=True))
                return tuple(by_axis.get(axis, REPEATED) for axis in range(keeps.ndim))
    return None
