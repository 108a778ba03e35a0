"""Randomness: a candidate that gives two answers to one question. Its mean over many runs tells what is behind it."""

from __future__ import annotations

import re

import numpy as np

from qkv.adapters.messages import Facts
from qkv.errors import CandidateError
from qkv.settling import Trial

RANDOM = (
    "two runs on the same input give different numbers: it computes with random ones, or with what it keeps from one "
    "call to the next; mend this first, then check again"
)
"""What is wrong where the mean is not right, and nothing speaks of dropout."""

RUNS = 100
"""Runs that are averaged: enough for a standard error of a tenth of the spread."""


def differs_from_run_to_run(trial: Trial) -> bool:
    """Whether the same inputs gave different outputs under other random numbers."""
    by_name = {observation.probe.name: observation for observation in trial.observations}
    first, again = by_name.get("ordinary"), by_name.get("again")
    return first is not None and again is not None and first.reproduced_by(again.output) is None


def has_dropout(facts: Facts) -> bool:
    """Whether a candidate says that it drops weights."""
    return bool(re.search("drop|bernoulli", f"{facts.source} {list(facts.attributes)}", re.IGNORECASE))


def right_on_average(trial: Trial) -> bool:
    """Whether the mean over many runs is the right output, to its own standard error: that is what dropout does.

    Raises:
        CandidateError: the candidate fails on the way.
    """
    ordinary = next(observation for observation in trial.observations if observation.probe.name == "ordinary")
    outputs = []
    for seed in range(RUNS):
        try:
            outputs.append(trial.reading.observe(ordinary.probe.inputs, seed=seed).output)
        except CandidateError as error:
            if error.fatal:
                raise
    if len(outputs) < RUNS // 2:
        return False
    runs = np.stack(outputs)
    standard_error = runs.std(axis=0) / len(outputs) ** 0.5
    off = np.abs(runs.mean(axis=0) - ordinary.expected.run.output)
    return bool(np.mean(off <= 4 * standard_error + ordinary.expected.tolerance.max()) >= 0.99)
