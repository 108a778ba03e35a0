"""Suspects: which fault gives the wrong rows of a long sequence back, and leaves the right ones as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from qkv.diagnosis import Diagnosis, Explanation, Observation, diagnose
from qkv.errors import CandidateError
from qkv.faults import Variant
from qkv.faults.length import LIMITS, from_row, ways_at
from qkv.long_sequence.answer import Answer, answered
from qkv.settling import Trial

SHORTER = 0.77
"""The share of the length at which faults that give the same numbers are told apart: no round one."""

EVENLY = 6
"""Rows, evenly spaced, that a fault has to reproduce besides: those that were looked at closely stand out."""


def diagnosed(trial: Trial, answer: Answer, observations: Sequence[Observation], first: int) -> Diagnosis:
    """The fault behind the wrong rows.

    Args:
        trial: the candidate, to be called once more where several faults give the same numbers.
        answer: what it gave.
        observations: wrong rows and right ones; a fault has to reproduce all of them.
        first: the first wrong row: where something ends, if it ends at no round number.
    """
    known = longest_probe(trial)
    evenly = np.linspace(0, answer.length - 1, EVENLY, dtype=int)
    observations = [*observations, *(answer.rows([int(row)]) for row in evenly)]
    ends = [end for end in dict.fromkeys((first, first + 1, *LIMITS)) if known < end < 2 * answer.length]
    of_catalogue = diagnose(observations, pairs=False)
    found = [
        *_reproducing(observations, ways_at(answer.spec, ends)),
        *([of_catalogue.best] if of_catalogue.best is not None else ()),
        *of_catalogue.alternatives,
    ]
    found = found or _from_row(answer, observations, first)
    if len({explanation.ids for explanation in found}) > 1:
        found = _told_apart(trial, answer, found) or found
    return Diagnosis(found[0], tuple(found[1:])) if found else Diagnosis()


def _from_row(answer: Answer, observations: Sequence[Observation], first: int) -> list[Explanation]:
    """Faults of the catalogue that rows from the first wrong one on have, and none of the rows before it."""
    offset = answer.spec.offset_for(answer.length, answer.length)
    late = [answer.rows([int(row)]) for row in np.linspace(first, answer.length - 1, EVENLY, dtype=int)]
    for observation in observations:
        rows = [int(at) - offset for at in observation.expected.run.token_positions()[0]]
        if max(rows) >= first:
            late.append(answer.rows([row for row in rows if row >= first]))
    of_late = diagnose(late, pairs=False)
    found = [of_late.best, *of_late.alternatives] if of_late.best is not None else []
    return [replace(one, variants=tuple(from_row(way, first + offset) for way in one.variants)) for one in found]


def longest_probe(trial: Trial) -> int:
    """The number of tokens at which the candidate is known to be right."""
    return max(observation.expected.run.inputs.lengths[0] for observation in trial.observations)


def _reproducing(observations: Sequence[Observation], variants: Iterable[Variant]) -> list[Explanation]:
    found = []
    with np.errstate(all="ignore"):
        for variant in variants:
            errors = []
            for observation in observations:
                error = observation.reproduced_under((variant,))
                if error is None:
                    break
                errors.append(error)
            else:
                found.append(Explanation((variant,), max(errors)))
    return sorted(found, key=lambda explanation: explanation.error)


def _told_apart(trial: Trial, answer: Answer, found: Sequence[Explanation]) -> list[Explanation]:
    """Those of the explanations that give the candidate's numbers at another length too."""
    try:
        shorter = answered(trial, int(SHORTER * answer.length), answer.asked_for)
    except CandidateError:
        return []
    rows = [shorter.rows([row]) for row in np.linspace(0, shorter.length - 1, EVENLY, dtype=int)]
    with np.errstate(all="ignore"):
        return [one for one in found if all(row.reproduced_under(one.variants) is not None for row in rows)]
