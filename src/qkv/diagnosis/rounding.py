"""Rounding: faults of precision, which come near to a candidate's numbers and never give them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qkv.comparison import EPSILON, tolerance_of
from qkv.diagnosis.explanation import Explanation
from qkv.diagnosis.observation import Observation
from qkv.diagnosis.twins import twin
from qkv.faults import CATALOGUE, Variant
from qkv.vocabulary import Stage

NEARLY = 0.5
"""A fault that only rounds explains a candidate if it leaves less than this share of its error, on every probe."""


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
    """Low precision somewhere inside, where all would be right if the candidate had been run in it."""
    for dtype in ("float16", "bfloat16"):
        if EPSILON[dtype] <= EPSILON[observations[0].expected.held_to]:
            continue
        errors = [_error_in(observation, dtype) for observation in observations]
        if max(errors) <= 1.0:
            fault = next(fault for fault in CATALOGUE.values() if fault.rounds and fault.stage is Stage.SOFTMAX)
            note = f"right to the rounding of {dtype}, somewhere inside, and not to that of float32"
            return Explanation((Variant(fault, {}, note),), max(errors))
    return None


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
