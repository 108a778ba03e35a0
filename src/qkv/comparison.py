"""Comparison: is a difference a difference, and which row is the first that has one.

Each row (one query token of one head of one sequence) is judged by itself, so one bad row can't hide behind noisy ones.
Its bar is what rounding at the candidate's precision does to a plain implementation on that very row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from qkv.oracle import Inputs, Replacements, Run, StageFunction, resume, run_stages
from qkv.oracle.blocks import Block
from qkv.oracle.rounding import rounded
from qkv.oracle.stages import STAGES
from qkv.vocabulary import Stage

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

EPSILON: Mapping[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next number, by dtype."""

MARGIN = 16.0
"""How many times the rounding of a plain implementation a right one may be off.

Measured in benchmarks/tolerance.py: from 8 to 65,536 keys right ones reach 0.34 of the bar in float32, and 0.06 in
bfloat16 and float16.
"""

DRAWS = 3
"""Roundings that the bar is drawn from: one alone may happen to be small in a row that is sensitive."""

FLOOR = 4.0
"""No row is held to less than this many times epsilon and the largest entry of its head."""


@dataclass(frozen=True)
class Expectation:
    """What the oracle says of one probe, and how far rounding may take a right candidate from it.

    Attributes:
        run: the oracle's run, with every stage's tensors.
        tolerance: largest absolute error that still counts as rounding, ``(batch, query, head)``.
        judged: rows that count, ``(batch, query, head)``: not those of padding.
        num_heads: how many heads the output's last axis can be told apart into; 1 behind an output projection.
        held_to: the dtype whose rounding is allowed for.
    """

    run: Run
    tolerance: Floats
    judged: Bools
    num_heads: int
    held_to: str

    @cached_property
    def rows(self) -> Floats:
        """The right output as rows, ``(batch, query, head, channel)``."""
        return as_rows(self.run.output, self.num_heads)

    def compare(self, output: Floats) -> Comparison:
        """The comparison of a candidate's ``(batch, query, width)`` with the right output, row by row."""
        got = as_rows(output, self.num_heads)
        with np.errstate(invalid="ignore"):
            difference = np.abs(got - self.rows)
        same = (np.isnan(got) & np.isnan(self.rows)) | (got == self.rows)
        difference = np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
        return Comparison(self, got, difference)

    def agrees(self, output: Floats) -> float | None:
        """The largest error in units of the tolerance; None where a row disagrees. For quick searches."""
        rows = as_rows(output, self.num_heads)
        with np.errstate(invalid="ignore"):
            error = np.abs(rows - self.rows).max(axis=-1) / self.tolerance
        worst = float(np.max(error, where=self.judged, initial=0.0))
        if worst <= 1.0:
            return worst
        if np.isnan(worst):
            comparison = self.compare(output)
            return comparison.worst if comparison.agrees else None
        return None


@dataclass(frozen=True)
class Comparison:
    """A candidate's output beside the right one.

    Attributes:
        expectation: the right output and its tolerance.
        got: the candidate's output as rows, ``(batch, query, head, channel)``.
        difference: absolute error of each entry; infinite where one of the two is NaN and the other is not.
    """

    expectation: Expectation
    got: Floats
    difference: Floats

    @cached_property
    def error(self) -> Floats:
        """Largest absolute error of each row, ``(batch, query, head)``."""
        return self.difference.max(axis=-1, initial=0.0)

    @cached_property
    def wrong(self) -> Bools:
        """Which rows are wrong, ``(batch, query, head)``."""
        return (self.error > self.expectation.tolerance) & self.expectation.judged

    @property
    def agrees(self) -> bool:
        """Whether every row that counts is right."""
        return not self.wrong.any()

    @property
    def max_error(self) -> float:
        """Largest absolute error in any row that counts."""
        return float(np.max(self.error, where=self.expectation.judged, initial=0.0))

    @property
    def worst(self) -> float:
        """Largest error of a row that counts, in units of its tolerance."""
        return float(np.max(self.error / self.expectation.tolerance, where=self.expectation.judged, initial=0.0))

    @property
    def first(self) -> tuple[int, int, int, int] | None:
        """Batch, query, head and channel of the first entry that is wrong; None where none is."""
        places = np.argwhere(self.wrong)
        if not len(places):
            return None
        batch, query, head = (int(place) for place in places[0])
        over = self.difference[batch, query, head] > self.expectation.tolerance[batch, query, head]
        return batch, query, head, int(np.argmax(over))


def as_rows(output: Floats, num_heads: int) -> Floats:
    """``(batch, query, head*channel)`` as ``(batch, query, head, channel)``."""
    batch, query, width = output.shape
    return output.reshape(batch, query, num_heads, width // num_heads)


def as_seen(inputs: Inputs, dtype: str) -> Inputs:
    """What is left of inputs that are handed over in ``dtype``: a candidate is held to the numbers that it saw."""
    with np.errstate(all="ignore"):
        return inputs.map(lambda array: round_to(array, dtype) if array.dtype.kind == "f" else array)


def expectation(run: Run, dtype: str, *, judge_empty_rows: bool = True, draws: int = DRAWS) -> Expectation:
    """What the oracle's finished run expects of a candidate that computes in ``dtype``.

    A candidate in float64 is held to float32's rounding: many right ones keep a softmax or a rope table in float32.
    Without any draw of roundings the bar is the floor: whoever stays below it is right, and it costs nothing.
    """
    held_to = "float32" if dtype == "float64" else dtype
    num_heads = 1 if _projects(run) else run.spec.num_heads
    judged = judged_rows(run, num_heads, judge_empty_rows)
    return Expectation(run, tolerance_of(run, {}, held_to, num_heads, draws), judged, num_heads, held_to)


def tolerance_of(run: Run, replacements: Replacements, dtype: str, num_heads: int, draws: int = DRAWS) -> Floats:
    """How far rounding may take a candidate in ``dtype`` from a run that replaced these stages, row by row.

    Raises:
        QkvError: a replacement can't be made on these inputs.
    """
    rows = as_rows(run.output, num_heads)
    rounding = np.zeros(rows.shape[:-1])
    for draw in range(draws):
        with np.errstate(invalid="ignore"):
            off = np.abs(as_rows(rounded_run(run, dtype, replacements, draw).output, num_heads) - rows)
        rounding = np.maximum(rounding, np.nan_to_num(off, nan=0.0, posinf=0.0).max(axis=-1, initial=0.0))
    # Rows of a block stand far from each other in a long sequence, and their sizes differ by as much.
    alike = 3 if isinstance(run, Block) else (1, 3)
    magnitude = np.abs(np.nan_to_num(rows)).max(axis=alike, keepdims=True, initial=np.finfo(np.float64).tiny)[..., 0]
    return np.maximum(MARGIN * rounding, FLOOR * EPSILON[dtype] * magnitude)


def _projects(run: Run) -> bool:
    parameters = run.inputs.parameters
    return run.spec.out_proj and parameters is not None and parameters.out_proj is not None


def judged_rows(run: Run, num_heads: int, judge_empty_rows: bool) -> Bools:
    """Which rows count, ``(batch, query, head)``: not padding, and empty ones only if their rule is meant."""
    batch, _, query_len, key_len = run.weights.shape
    judged = np.ones((batch, query_len, num_heads), dtype=bool)
    is_token = run.inputs.is_token
    if is_token is not None and query_len == key_len:
        judged &= is_token[:, :, None]
    if not judge_empty_rows and run.may_attend is not None:
        judged &= run.may_attend.any(axis=-1).all(axis=1)[:, :, None]
    return judged


def rounded_run(run: Run, dtype: str, replacements: Replacements, draw: int = 0) -> Run:
    """The same attention with every stage's tensors rounded to ``dtype``: what a plain implementation in it gives.

    Args:
        run: the oracle's run.
        dtype: what to round to.
        replacements: stages done another way.
        draw: 0 rounds to the nearest; other numbers first move each entry within its rounding, as sums in another order
            and tables of angles in this dtype would.
    """
    rng = np.random.default_rng(draw)
    near = rounder(dtype, draw, rng)

    def rounding(stage: StageFunction) -> StageFunction:
        def rounded(before: Run) -> Run:
            after = stage(before)
            names = [name for name in _TENSORS if getattr(after, name) is not getattr(before, name)]
            return after.but(**{name: near(getattr(after, name)) for name in names})

        return rounded

    with np.errstate(all="ignore"):
        stages = {name: rounding(stage) for name, stage in {**STAGES, **replacements}.items()}
        spec = run.spec
        if spec.rope is not None and draw:
            base = spec.rope.base * (1 + EPSILON[dtype] * rng.uniform(-1, 1))
            spec = spec.but(rope=replace(spec.rope, base=base))
        if isinstance(run, Block):  # made of inputs as the candidate saw them, rounded already
            made = {} if run.inputs.query is not None else {n: round_to(x, dtype) for n, x in run.begun.items()}
            return resume(run.but(spec=spec, **{**run.begun, **made}), stages, Stage.POSITION.order)
        return run_stages(spec, as_seen(run.inputs, dtype), stages)


def rounder(dtype: str, draw: int, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """A function that rounds arrays to ``dtype``; for draws above 0, each entry moved within its rounding before."""

    def near(array: Floats) -> Floats:
        if draw == 0:
            return round_to(array, dtype)
        factor = EPSILON[dtype] * rng.uniform(-1, 1, array.shape)
        factor += 1  # in place: scores of long sequences are large
        return round_to(array * factor, dtype)

    return near


_TENSORS = ("query", "key", "value", "scores", "weights", "context", "output")


def round_to(array: Floats, dtype: str) -> Floats:
    """``array`` rounded to ``dtype`` and back to float64."""
    return rounded(np, array, dtype)
