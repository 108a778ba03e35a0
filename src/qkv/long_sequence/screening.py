"""Screening: every row of every head beside the streamed oracle, to find those that deserve a closer look.

A row is compared through a few random directions of its channels: mixed into the values beforehand, they cost a
fraction of the whole, and a wrong row shows in them as it shows in its channels. How far rounding goes is measured on a
few rows, in units of a row's own size: that share hardly changes with length (benchmarks/long.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.comparison import DRAWS, EPSILON, Bools, Floats, as_rows, rounded_run
from qkv.long_sequence.answer import Answer
from qkv.oracle.streaming import contexts

DIRECTIONS = 8
"""Directions that rows are compared in. Fewer would miss errors by chance, more would cost as much as all channels."""

NEAR = 3.0
"""How many times the usual rounding a row may be off before it is looked at closely. That look decides.

Screening rounds too, scores and shares to float32, about as much as is usual there: whatever is off by four times the
usual is seen to be off by three.
"""

SAMPLE = 9
"""Rows on which rounding is measured."""


@dataclass(frozen=True)
class Screen:
    """What screening found.

    Attributes:
        off: how far each row is off, in units of the bar for a closer look, ``(query, head)``; NaN where the oracle
            was not asked.
    """

    off: Floats

    @property
    def seen(self) -> Bools:
        """Which rows were compared, ``(query, head)``."""
        return ~np.isnan(self.off)

    @property
    def suspicious(self) -> Bools:
        """Which rows deserve a closer look, ``(query, head)``."""
        return np.nan_to_num(self.off) > 1.0

    def furthest(self, parts: int) -> list[int]:
        """The row that is furthest off in each of so many parts of the sequence, if it deserves a closer look."""
        off = np.nan_to_num(self.off).max(axis=1)
        rows = [int(part[np.argmax(off[part])]) for part in np.array_split(np.arange(len(off)), parts) if len(part)]
        return [row for row in rows if off[row] > 1.0]


def screen(answer: Answer, advance: Callable[[float], None]) -> Screen:
    """Every row beside the oracle's. Interrupted, it gives what it has seen so far.

    Args:
        answer: what the candidate gave.
        advance: is told the share of the work done since it was told last.
    """
    width = answer.output.shape[-1] // answer.row_heads
    directions = _directions(width)
    usual = _usual_rounding(answer, directions)
    expected, to_come = _begun(answer, directions)
    per_block = 1 / (answer.length * answer.spec.num_heads)
    try:
        for rows in contexts(answer.spec, answer.probe.inputs, mixer=_mixer(answer, directions), quick=True):
            head = 0 if answer.projects else rows.head
            expected[rows.queries, head] += rows.context[0, 0]
            to_come[rows.queries, head] -= 1
            advance(per_block * (rows.queries.stop - rows.queries.start))
    except KeyboardInterrupt:
        pass  # what was compared so far counts
    with np.errstate(all="ignore"):
        got = as_rows(answer.output, answer.row_heads)[0] @ directions  # query head direction
        off = np.linalg.norm(got - expected, axis=-1)
        bar = NEAR * usual * np.linalg.norm(expected, axis=-1)
        share = np.where(off == 0, 0.0, np.nan_to_num(off / bar, nan=np.inf, posinf=np.inf))
    return Screen(np.where(to_come > 0, np.nan, share))


def _directions(width: int) -> Floats:
    """Orthonormal directions, ``(width, direction)``."""
    rng = np.random.default_rng(0)
    return np.linalg.qr(rng.normal(size=(width, width)))[0][:, :DIRECTIONS]


def _mixer(answer: Answer, directions: Floats) -> Floats:
    """What brings each head's context into the directions, ``(head, value_dim, direction)``."""
    if not answer.projects:
        return np.broadcast_to(directions, (answer.spec.num_heads, *directions.shape))
    weight = answer.probe.inputs.parameters.out_proj.weight.astype(np.float64)  # type: ignore[union-attr]
    return (weight.T @ directions).reshape(answer.spec.num_heads, -1, directions.shape[1])


def _begun(answer: Answer, directions: Floats) -> tuple[Floats, Floats]:
    """What rows have before any head's context is added, ``(query, head, direction)``, and how many heads they need."""
    expected = np.zeros((answer.length, answer.row_heads, directions.shape[1]))
    to_come = np.full((answer.length, answer.row_heads), answer.spec.num_heads if answer.projects else 1)
    if answer.projects:
        bias = answer.probe.inputs.parameters.out_proj.bias  # type: ignore[union-attr]
        expected += 0.0 if bias is None else bias @ directions
    return expected, to_come


def _usual_rounding(answer: Answer, directions: Floats) -> Floats:
    """The error that rounding usually makes in a row, over the row's size, ``(head,)``.

    Where all the rows that were looked at are empty, it is the rounding of one number.
    """
    shares = []
    with np.errstate(all="ignore"):
        for queries in in_parts(sample(answer.length, SAMPLE), answer.rows_at_once):
            expected = answer.rows(queries, draws=0).expected
            right = expected.rows[0] @ directions  # query head direction
            runs = (rounded_run(expected.run, expected.held_to, {}, draw) for draw in range(DRAWS))
            off = [as_rows(run.output, answer.row_heads)[0] @ directions - right for run in runs]
            shares.append(np.linalg.norm(off, axis=-1).max(axis=0) / np.linalg.norm(right, axis=-1))
    of_head = np.concatenate(shares).T
    known = (share[np.isfinite(share)] for share in of_head)
    return np.array([np.median(share) if share.size else EPSILON[expected.held_to] for share in known])


def in_parts(queries: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The queries, so many at a time."""
    return (queries[start : start + size] for start in range(0, len(queries), size))


def sample(length: int, count: int) -> list[int]:
    """Rows all over a sequence: early ones, where few keys count, the last one, and others evenly between."""
    early = [1, 5, 20]
    spread = np.linspace(0, length - 1, count - len(early), dtype=int)[1:]
    return sorted({row for row in (*early, *map(int, spread)) if row < length})
