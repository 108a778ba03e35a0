"""Together: a fault too small for any one row, seen in many.

At 65,536 keys a key that is dropped moves a row by less than what bfloat16 rounds away. But roundings point anywhere,
and a fault moves every entry of every row in a direction of its own. The share of that direction in all errors is near
0 for a right candidate and near 1 for one with the fault (a matched filter).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.comparison import EPSILON, Floats, as_rows
from qkv.diagnosis import Observation, twin
from qkv.faults import CATALOGUE, Variant
from qkv.faults.length import LIMITS, ways_at
from qkv.long_sequence.answer import Answer
from qkv.long_sequence.screening import in_parts
from qkv.vocabulary import Stage

ROWS = 16
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

    It is asked only where precision is low: in float32 a fault shows in single rows, however long they are. And it is
    asked for faults of mask and softmax: a few keys of many are too little to see, what changes the scores is not.
    """
    if EPSILON.get(answer.dtype, 0.0) <= EPSILON["float32"]:
        return None
    late = (variant for variant in _variants(answer) if min(variant.replacements) >= Stage.MASK)
    found = [drift for drift in drifts(some_observations(answer), list(late)) if drift.certain]
    return min(found, key=lambda drift: drift.error, default=None)


def some_observations(answer: Answer) -> Iterator[Observation]:
    """Rows with many keys, none of them a round number, as many at a time as fit into little memory."""
    rows = sorted({int(share * (answer.length - 1)) for share in np.linspace(0.61, 1, ROWS)})
    return (answer.rows(queries) for queries in in_parts(rows, answer.rows_at_once))


def drifts(observations: Iterable[Observation], variants: Sequence[Variant]) -> list[Drift]:
    """The share of each fault in the errors of some observations; of faults that change their rows at all."""
    entries, squared = 0, 0.0
    effects, together = np.zeros(len(variants)), np.zeros(len(variants))
    with np.errstate(all="ignore"):
        for observation in observations:
            right = observation.expected.rows
            size = np.linalg.norm(right, axis=-1, keepdims=True)
            error = (observation.comparison.got - right) / size
            entries, squared = entries + error.size, squared + float(np.sum(error**2))
            for place, variant in enumerate(variants):
                effect = (_rows_under(variant, observation) - right) / size
                effects[place] += np.sum(effect**2)
                together[place] += np.sum(effect * error)
    return [
        _drift(variant, effect, product, squared, entries)
        for variant, effect, product in zip(variants, effects, together, strict=True)
        if 0 < effect < math.inf
    ]


def _drift(variant: Variant, effect: float, product: float, squared: float, entries: int) -> Drift:
    """The least squares of ``error = share * effect``, from the sums of their squares and of their product."""
    share = product / effect
    left = max(squared - share * product, 0.0)
    return Drift(variant, share, math.sqrt(left / entries / effect))


def _rows_under(variant: Variant, observation: Observation) -> Floats:
    """The rows under a fault; the right ones where it can't be made."""
    right = observation.expected.rows
    run = twin(observation.expected.run, variant.replacements)
    fits = run is not None and run.output.shape == observation.output.shape
    return as_rows(run.output, observation.expected.num_heads) if fits else right  # type: ignore[union-attr]


def _variants(answer: Answer) -> Iterator[Variant]:
    for fault in CATALOGUE.values():
        if not fault.rounds:
            yield from fault.variants(answer.spec)
    yield from ways_at(answer.spec, [limit for limit in LIMITS if limit < 2 * answer.length])
