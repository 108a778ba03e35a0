"""Faults that only length brings: room for so many tokens and no more, counters that begin again or count coarsely.

They are a catalogue of their own: the other one is tried on short inputs, these are tried on rows of a long run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from qkv.faults.as_if import unless
from qkv.faults.fault import Fault, Variant
from qkv.faults.masking import hidden_by
from qkv.faults.memory import index_overflow
from qkv.masks import SlidingWindow
from qkv.oracle import Array, Run, StageFunction
from qkv.oracle.blocks import Block
from qkv.oracle.rounding import rounded
from qkv.oracle.stages import allowed, bias, mask, position, scores
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

LIMITS = tuple(2**power for power in range(7, 18))
"""Where tables, buffers and counters usually end."""

Counting = Callable[[Run, Array], Array]
"""What becomes of positions, ``(query,)`` or ``(key,)``."""


def ways_at(spec: AttentionSpec, limits: Sequence[int]) -> Iterator[Variant]:
    """Every way of these faults, with tables and counters that end at one of some limits."""
    for note, counting in _coarse():
        yield from _miscounted(POSITIONS_COARSE, spec, note, counting)
    for limit in limits:
        for note, counting in _ending(limit):
            yield from _miscounted(POSITIONS_END, spec, note, counting)
        yield Variant(KEYS_END, {Stage.MASK: _only_keys_below(limit)}, f"only the first {limit} keys are seen")
        yield Variant(KEYS_END, {Stage.MASK: _only_nearest(limit)}, f"only the nearest {limit} keys are seen")
        yield Variant(index_overflow, {Stage.SCORES: _read_again(limit)}, f"key and value j are those of j % {limit}")


def from_row(variant: Variant, first: int) -> Variant:
    """A fault that only queries at positions from some number on have: code may go another way for them."""

    def late(stage: StageFunction) -> StageFunction:
        def replaced(run: Run) -> Run:
            unless(bool(run.xp.max(run.token_positions()[0]) < first), "no query stands so late")
            return stage(run)

        return replaced

    note = "; ".join(part for part in (variant.note, f"only queries at positions from {first:,} on") if part)
    return Variant(variant.fault, {stage: late(new) for stage, new in variant.replacements.items()}, note)


# --- positions --------------------------------------------------------------------------------------------------------


def _ending(limit: int) -> Iterator[tuple[str, Counting]]:
    half = limit // 2
    yield f"positions from {limit} on count as {limit - 1}", lambda run, at: run.xp.clip(at, None, limit - 1)
    yield f"positions from {limit} on count from 0 again", lambda run, at: at % limit
    yield f"positions from {half} on count from -{half}", lambda run, at: (at + half) % limit - half


def _coarse() -> Iterator[tuple[str, Counting]]:
    for dtype in ("bfloat16", "float16"):
        yield f"positions are {dtype}", _rounding(dtype)


def _rounding(dtype: str) -> Counting:
    return lambda run, at: rounded(run.xp, run.array(at), dtype)


def _miscounted(fault: Fault, spec: AttentionSpec, note: str, counting: Counting) -> Iterator[Variant]:
    """The ways in which positions that are miscounted may show: in rope, in the bias, in the mask."""
    if spec.rope is not None:
        yield Variant(fault, {Stage.POSITION: _counted(position, counting)}, f"in rope, {note}")
    if spec.alibi is not None or spec.relative_bias is not None:
        yield Variant(fault, {Stage.BIAS: _counted(bias, counting)}, f"in the bias, {note}")
    yield Variant(fault, {Stage.MASK: _counted(mask, counting)}, f"in the mask, {note}")


def _counted(stage: StageFunction, counting: Counting) -> StageFunction:
    """The stage as it is done at other positions."""

    def miscounted(run: Run) -> Run:
        assert isinstance(run, Block)
        at = run.at
        moved = replace(at, query=counting(run, at.query), key=counting(run, at.key))
        unchanged = bool(run.xp.all(moved.query == at.query)) and bool(run.xp.all(moved.key == at.key))
        unless(unchanged, "no position is so large")
        return stage(run.but(at=moved)).but(at=at)

    return miscounted


POSITIONS_END = Fault(
    "positions-end",
    Stage.POSITION,
    "positions end, or begin again, at some length",
    "A table of positions, or a counter of few bits, has room for so many tokens. Beyond, all tokens stand at the last "
    "position, or are counted from the beginning again, so distances are wrong. Rows before the end are right, and so "
    "is every shorter sequence.",
    "positions = torch.arange(key_len)  # and tables as long as the longest sequence",
    lambda spec: iter(()),
)
POSITIONS_COARSE = Fault(
    "positions-low-precision",
    Stage.POSITION,
    "positions are counted in half precision",
    "bfloat16 counts whole numbers to 256 and float16 to 2,048; beyond, neighbouring tokens get one position. The mask "
    "then hides the wrong keys, or shows a later one, and distances are off by several tokens.",
    "positions = torch.arange(key_len)  # int64, whatever the model's dtype is",
    lambda spec: iter(()),
)

# --- keys -------------------------------------------------------------------------------------------------------------


def _only_keys_below(limit: int) -> StageFunction:
    def hiding(run: Run) -> Run:
        key = run.positions().key
        unless(bool(run.xp.max(key) < limit), "no key is past the end")
        return hidden_by(run, allowed(run) & (key < limit))

    return hiding


def _only_nearest(limit: int) -> StageFunction:
    def hiding(run: Run) -> Run:
        at = run.positions()
        unless(bool(run.xp.max(run.xp.abs(at.query - at.key)) < limit), "no key is so far away")
        return hidden_by(run, allowed(run) & SlidingWindow(limit).allows(at))

    return hiding


def _read_again(limit: int) -> StageFunction:
    def wrapped(run: Run) -> Run:
        key_len = run.key.shape[-2]
        unless(key_len <= limit, "no index is past the end")
        index = run.xp.arange(key_len) % limit
        done = scores(run.but(key=run.xp.take(run.key, index, axis=-2)))
        return done.but(key=run.key, value=run.xp.take(run.value, index, axis=-2))

    return wrapped


KEYS_END = Fault(
    "keys-end",
    Stage.MASK,
    "keys past some number are not seen",
    "A buffer, a grid of blocks or a loop has room for so many keys. What stands beyond is dropped without a word: "
    "rows that need it miss it, all shorter sequences are right.",
    "num_blocks = (key_len + block - 1) // block  # from the length, whatever it is",
    lambda spec: iter(()),
)

LENGTH_FAULTS = {fault.id: fault for fault in (POSITIONS_END, POSITIONS_COARSE, KEYS_END)}
"""These faults by their ids, but for the overflow of an index, which a short input can show too."""
