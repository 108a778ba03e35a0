"""Rounding: faults of precision, which come near to a candidate's numbers and never give them exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from qkv.comparison import EPSILON, MARGIN, Expectation, Floats, tolerance_of
from qkv.diagnosis.explanation import Explanation
from qkv.diagnosis.observation import Observation
from qkv.diagnosis.twins import twin
from qkv.faults import CATALOGUE, Variant
from qkv.vocabulary import Stage

NEARLY = 0.5
"""A fault that only rounds explains a candidate if it leaves less than this share of its error, on every probe."""

NEARLY_ALL, MANY, ONE_SIDED = 0.9, 30, 0.3
"""Share of rows that counts as nearly all; how many rows it takes to tell sides, and the most their signs may lean."""

SPREAD = 0.9
"""The largest weight of a row that spreads its weight."""

LEAST_ERROR, TYPICAL_ERROR, MOST_ERROR, FARTHEST = 1e-3, 0.02, 2.0, 6.0
"""Errors of rows, in units of what a plain implementation in that dtype makes of them.

The least of nearly all, beside the typical one: rows as good as right aren't rounded so; the typical one, at least; the
most of nearly all; and the most of any.
"""


def by_rounding(observations: Sequence[Observation]) -> Explanation | None:
    """The fault of precision that comes nearest to the candidate; None where none explains most of its error."""
    run = observations[0].expected.run
    failing = sorted((o for o in observations if not o.comparison.agrees), key=lambda o: o.cost)
    best: tuple[float, Variant] | None = None
    for fault in CATALOGUE.values():
        for variant in fault.variants(run.spec) if fault.rounds else ():
            left = 0.0
            for observation in failing:
                left = max(left, _share_left(observation, variant))
                if left >= (NEARLY if best is None else best[0]):
                    break
            else:
                best = (left, variant)
    return None if best is None else Explanation((best[1],), best[0])


def by_coarse_rounding(observations: Sequence[Observation]) -> Explanation | None:
    """Low precision somewhere inside, where all would be right if the candidate had been run in it.

    A fault may stay below that bar too: the errors must be spread over all rows as those of roundings are.
    """
    for dtype in ("float16", "bfloat16"):
        if EPSILON[dtype] <= EPSILON[observations[0].expected.held_to]:
            continue
        errors = [_error_in(observation, dtype) for observation in observations]
        if max(errors) <= 1.0 and _spread_as_rounding(observations, dtype):
            fault = next(fault for fault in CATALOGUE.values() if fault.rounds and fault.stage is Stage.SOFTMAX)
            note = f"right to the rounding of {dtype}, somewhere inside, and not to that of float32"
            return Explanation((Variant(fault, {}, note),), max(errors))
    return None


def _spread_as_rounding(observations: Sequence[Observation], dtype: str) -> bool:
    """Whether the errors of rows are as large as those of roundings, in nearly all of them, and to either side.

    Only rows that spread their weight count: what is rounded where one key is read may be a weight of exactly one.
    """
    found = [_beside_rounding(observation, dtype) for observation in observations]
    sizes = np.concatenate([size for size, _ in found])
    pulls = np.concatenate([pull for _, pull in found])  # row direction
    if not len(sizes):
        return False
    low, middle, high = np.quantile(sizes, [1 - NEARLY_ALL, 0.5, NEARLY_ALL])
    sides = np.sign(pulls).mean(axis=0)
    to_one_side = len(sizes) >= MANY and np.abs(sides).max() > ONE_SIDED
    in_all = middle >= TYPICAL_ERROR and low >= LEAST_ERROR * middle
    return bool(in_all and high <= MOST_ERROR and sizes.max() <= FARTHEST and not to_one_side)


def _beside_rounding(observation: Observation, dtype: str) -> tuple[Floats, Floats]:
    """Of each row its error in units of what roundings make of it, and how far it goes in each direction of a fault."""
    expected = observation.expected
    spread = expected.run.weights.max(axis=-1).swapaxes(1, 2) < SPREAD  # batch query head
    counts = expected.judged & (spread if expected.num_heads > 1 else spread.all(axis=-1, keepdims=True))
    rounding = tolerance_of(expected.run, {}, dtype, expected.num_heads) / MARGIN
    error = observation.comparison.got - expected.rows
    pulls = [np.sum(error * way, axis=-1) for way in _ways_of_faults(expected)]
    return (observation.comparison.error / rounding)[counts], np.stack(pulls, axis=-1)[counts]


def _ways_of_faults(expected: Expectation) -> Iterator[Floats]:
    """Where rows go that are a little too large, whose scores are, or whose later keys get a little too much weight."""
    run = expected.run
    yield expected.rows
    whole = expected.rows.shape[2] == run.weights.shape[1]  # the heads are told apart, and are those of one call
    if not whole or run.parts:
        return
    shared = np.repeat(run.value, run.weights.shape[1] // run.value.shape[1], axis=1)
    for moved in (run.scores, np.arange(float(run.weights.shape[-1]))):
        with np.errstate(invalid="ignore"):
            mean = np.nansum(np.where(run.weights > 0, run.weights * moved, 0.0), axis=-1, keepdims=True)
            more = np.where(run.weights > 0, run.weights * (moved - mean), 0.0)
        yield (more @ shared).swapaxes(1, 2)  # batch query head channel


def _error_in(observation: Observation, dtype: str) -> float:
    expected = observation.expected
    tolerance = tolerance_of(expected.run, {}, dtype, expected.num_heads)
    return replace(expected, tolerance=tolerance).compare(observation.output).worst


def _share_left(observation: Observation, variant: Variant) -> float:
    given = twin(observation.expected.run, variant.replacements)
    if given is None:
        return 1.0
    got, right = observation.comparison.got, observation.expected.rows
    judged = observation.expected.judged[..., None]
    off = float(np.sum(np.where(judged, (got - right) ** 2, 0.0)))
    left = float(np.sum(np.where(judged, (got - given.output.reshape(got.shape)) ** 2, 0.0)))
    small = off <= (0.1 * float(np.abs(right).max())) ** 2 * got.size
    return left**0.5 / off**0.5 if off > 0 and small else 1.0
