"""Together: a fault too small for any one row, seen in many.

At 65,536 keys a key that is dropped moves a row by less than what bfloat16 rounds away. But roundings point anywhere,
and a fault moves every entry of every row in a direction of its own. The share of that direction in all errors is near
0 for a right candidate and near 1 for one with the fault (a matched filter).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qkv.comparison import EPSILON, Floats, as_rows
from qkv.diagnosis import Observation, twin
from qkv.faults import CATALOGUE, Variant
from qkv.faults.length import LIMITS, ways_at
from qkv.long_sequence.answer import Answer
from qkv.vocabulary import Stage

ROWS = 4
"""Rows that are asked: each has as many entries as all heads have channels."""

CERTAIN = 10.0
"""Standard errors that the share must be above 0."""

NEAR_ONE = 0.2
"""How far the share may be from 1."""


@dataclass(frozen=True)
class Drift:
    """A fault in whose direction the errors of many rows point.

    Attributes:
        variant: the fault.
        share: how much of its effect there is: 1 for all of it.
        error: the standard error of the share.
    """

    variant: Variant
    share: float
    error: float

    @property
    def certain(self) -> bool:
        """Whether the fault is there, and not some other or none."""
        return abs(self.share - 1) <= NEAR_ONE and self.share > CERTAIN * self.error


def drifting(answer: Answer) -> Drift | None:
    """The fault that the rows of a candidate show together, the surest one; None where they show none.

    It is asked only where precision is low: in float32 a fault shows in single rows, however long they are.
    """
    if EPSILON.get(answer.dtype, 0.0) <= EPSILON["float32"]:
        return None
    observation = answer.rows(last_rows(answer.length))
    found = [drift for drift in drifts(observation, _variants(answer)) if drift.certain]
    return min(found, key=lambda drift: drift.error, default=None)


def last_rows(length: int) -> list[int]:
    """Rows with many keys, none of them a round number."""
    return sorted({int(share * (length - 1)) for share in np.linspace(0.61, 1, ROWS)})


def drifts(observation: Observation, variants: Iterator[Variant]) -> Iterator[Drift]:
    """The share of each fault in the errors of an observation."""
    right = observation.expected.rows
    size = np.linalg.norm(right, axis=-1, keepdims=True)
    got = (observation.comparison.got - right) / size
    with np.errstate(all="ignore"):
        for variant in variants:
            run = twin(observation.expected.run, variant.replacements)
            if run is None or run.output.shape != observation.output.shape:
                continue
            drift = _drift(variant, got, (as_rows(run.output, observation.expected.num_heads) - right) / size)
            if drift is not None:
                yield drift


def _drift(variant: Variant, got: Floats, way: Floats) -> Drift | None:
    square = float(np.sum(way**2))
    if not 0 < square < math.inf:
        return None
    share = float(np.sum(got * way)) / square
    left = float(np.sqrt(np.mean((got - share * way) ** 2)))
    return Drift(variant, share, left / math.sqrt(square))


def _variants(answer: Answer) -> Iterator[Variant]:
    for fault in CATALOGUE.values():
        if fault.stage >= Stage.POSITION and not fault.rounds:
            yield from fault.variants(answer.spec)
    yield from ways_at(answer.spec, [limit for limit in LIMITS if limit < 2 * answer.length])
