"""Faults of the sliding window: a query sees ``window`` keys, itself included."""

from __future__ import annotations

from collections.abc import Iterator

from qkv.faults.fault import Ways, fault
from qkv.faults.masking import Band, Blocks, FromBlock, masked_as, simple, with_changed, without
from qkv.faults.needs import CAUSAL, WINDOW
from qkv.faults.replacing import chain, impossible
from qkv.masks import Causal, Mask, SlidingWindow, sides_of, window_of
from qkv.oracle import Replacements, Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _window_as(spec: AttentionSpec, other: Mask) -> Replacements:
    return masked_as(with_changed(spec.mask, SlidingWindow, lambda part: other))


def _size(spec: AttentionSpec) -> int | None:
    return next((part.size for part in spec.mask.parts() if isinstance(part, SlidingWindow)), None)


@fault(
    "window-off-by-one",
    Stage.MASK,
    title="the window is one key too wide or too narrow",
    explanation=(
        "A window of W counts the query itself: i - j < W. With <= each query sees W + 1 keys and the rows from W "
        "on are wrong; counted one short, the rows from W - 1 on are. Earlier rows are right, so a test no longer "
        "than the window passes."
    ),
    repair="may_attend = (i - j >= 0) & (i - j < window)",
    needs=[WINDOW],
    commonness=3,
)
def window_off_by_one(spec: AttentionSpec) -> Ways:
    """``i - j <= W`` or ``i - j < W - 1`` for ``i - j < W``; without a causal mask also on one side only."""
    size = _size(spec)
    if size is None:
        return
    yield "one key too many", _window_as(spec, SlidingWindow(size + 1))
    if size > 1:
        yield "one key too few", _window_as(spec, SlidingWindow(size - 1))
    if not spec.masks(Causal):
        yield "one key too many before the query", _window_as(spec, Band(size, size - 1))
        yield "one key too many after the query", _window_as(spec, Band(size - 1, size))


@fault(
    "window-missing",
    Stage.MASK,
    title="the window is missing",
    explanation=(
        "A query should see the nearest keys only, and sees all of the past. Rows up to the window's width are "
        "right, every later row looks too far back; a test no longer than the window passes."
    ),
    repair="may_attend = may_attend & (i - j < window)",
    needs=[WINDOW],
    commonness=3,
)
def window_missing(spec: AttentionSpec) -> Ways:
    """``A(i)`` without ``i - j < W``; the other parts of the mask stay. Or only what a cache has let go is hidden."""
    if spec.masks(SlidingWindow):
        missing = masked_as(without(spec.mask, SlidingWindow))
        yield missing
        yield "only what has left the cache is hidden", {Stage.MASK: chain(missing[Stage.MASK], _kept_for_the_first)}


def _kept_for_the_first(run: Run) -> Run:
    """Hides the keys that the first query of a call does not need, for which alone the cache was cut."""
    size = _size(run.spec)
    if size is None:
        raise impossible("no window is the mask's only one")
    kept = run.token_positions()[1] > run.inputs.lengths[1] - run.inputs.lengths[0] - size
    hidden = run.array(-float("inf"))
    return run.but(may_attend=run.may_attend & kept, scores=run.xp.where(kept, run.scores, hidden))


def _other_sizes(run: Run) -> Iterator[tuple[str, Replacements]]:
    size = _size(run.spec)
    if size is None:
        return
    for other in range(1, min(run.inputs.lengths[1], 64)):
        if abs(other - size) > 1:
            yield f"the window is {other} for {size}", _window_as(run.spec, SlidingWindow(other))
    for block in (4, 8, 16, 32, 64, 128, 256):
        yield f"it begins where a block of {block} keys does", _window_as(run.spec, FromBlock(size, block))


@fault(
    "window-other-size",
    Stage.MASK,
    title="the window has another size",
    explanation=(
        "The window is half or double what it should be (a width on both sides taken for the whole, or the other "
        "way round), cut into fixed blocks or begun with a whole one, or another layer's. The first rows are right, "
        "up to the smaller of the two windows; all later ones see too few keys or too many."
    ),
    repair="may_attend = (i - j >= 0) & (i - j < window)  # window keys in all, the query's own included",
    needs=[WINDOW],
    further=_other_sizes,
    commonness=1,
)
def window_other_size(spec: AttentionSpec) -> Ways:
    """``i - j < W'``, ``i // W == j // W``, or ``j >= (i - W + 1) // B * B``."""
    size = _size(spec)
    if size is None:
        return
    sizes = {
        "half the window on each side": size // 2 + 1,
        "half the window": size // 2,
        "twice the window": 2 * size,
        "two keys too many": size + 2,
        "two keys too few": size - 2,
    }
    seen = {size - 1, size, size + 1}
    for note, other in sizes.items():
        if other > 0 and other not in seen:
            seen.add(other)
            yield f"{note}: {other} for {size}", _window_as(spec, SlidingWindow(other))
    if size > 1:
        yield "the window is cut in fixed blocks", _window_as(spec, Blocks(size))


@fault(
    "window-direction",
    Stage.MASK,
    title="the window limits one side only, or the wrong one",
    explanation=(
        "Without a causal mask a window has two sides. Here only the keys before the query are limited, or only "
        "those after it, so each row sees everything on the other side; or the two have changed places. The rows near "
        "one end of the text may be right."
    ),
    repair="may_attend = (i - j).abs() < window",
    needs=[WINDOW],
    commonness=1,
)
def window_direction(spec: AttentionSpec) -> Ways:
    """``i - j < W`` or ``j - i < W`` alone for ``|i - j| < W``; the window looks one way; ``(b, a)`` for ``(a, b)``."""
    size, (before, after) = _size(spec), sides_of(spec.mask)
    if before != after and after != 0 and before is not None and after is not None:
        exchanged = masked_as(window_of((after, before)))
        yield f"{after} keys before the query and {before} after it, for {before} and {after}", exchanged
    if size is None or spec.masks(Causal):
        return
    yield "keys after the query are not limited", _window_as(spec, Band(size - 1, None))
    yield "keys before the query are not limited", _window_as(spec, Band(None, size - 1))
    if size > 1:
        yield "only keys after the query", _window_as(spec, Band(0, size - 1))


@fault(
    "window-centred",
    Stage.MASK,
    title="the window is centred on the query and takes the place of the causal mask",
    explanation=(
        "A causal window ends at the query. Here it is centred on it, half of the keys before and half after, and "
        "nothing hides the future. Every row is wrong that could see further back, or that has tokens after it."
    ),
    repair="may_attend = (i - j >= 0) & (i - j < window)",
    needs=[WINDOW, CAUSAL],
    commonness=1,
)
def window_centred(spec: AttentionSpec) -> Ways:
    """``|i - j| <= W // 2`` for ``0 <= i - j < W``: as many keys, but on both sides."""
    size = _size(spec)
    if size is not None and size > 2 and spec.masks(Causal):
        mask = without(with_changed(spec.mask, SlidingWindow, lambda part: Band(size // 2, size // 2)), Causal)
        yield "as many keys, half of them ahead", masked_as(mask)


_WINDOWS = (2, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256)


def _unmeant(run: Run) -> Iterator[tuple[str, Replacements]]:
    if not run.spec.masks(SlidingWindow):
        for size in range(2, min(run.inputs.lengths[1], 256)):
            if size not in _WINDOWS:
                yield f"a window of {size}", masked_as(simple(run.spec.mask & SlidingWindow(size)))


@fault(
    "window-layers-swapped",
    Stage.MASK,
    title="a layer that should see everything has a window",
    explanation=(
        "Models mix layers with a window and layers without, and the pattern was counted from the wrong layer, or the "
        "window is set for all of them. Rows up to the window's width are right, every later row sees too little; a "
        "test no longer than the window passes."
    ),
    repair="window = config.sliding_window if config.layer_types[layer] == 'sliding_attention' else None",
    further=_unmeant,
    commonness=2,
)
def window_layers_swapped(spec: AttentionSpec) -> Ways:
    """``i - j < W`` where no window is meant; the opposite is ``window-missing``."""
    if not spec.masks(SlidingWindow):
        for size in _WINDOWS:
            yield f"a window of {size}", masked_as(simple(spec.mask & SlidingWindow(size)))
