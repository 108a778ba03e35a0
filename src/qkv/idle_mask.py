"""Idle masks: arguments for a mask that change nothing, in candidates that have a mask of their own.

Such an argument must not take the judging of the rest away: the candidate is judged without it. Where the mask that is
meant can only come through the argument, that it does nothing is the fault, and the argument stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.errors import CandidateError
from qkv.masks import Everything
from qkv.settling import Trial


def without_idle_mask(trials: Sequence[Trial]) -> list[Trial]:
    """The readings that are meant to mask, with their mask argument left out; none where it is needed or does anything.

    Args:
        trials: readings of one candidate. Their quick probes have run.
    """
    if not trials or not _is_idle(trials[0]):
        return []
    argument = trials[0].called.signature.roles["mask"].name
    words = f"its argument {argument!r} changes nothing, and was left out"
    different = {trial.reading.spec: trial for trial in reversed(trials) if trial.reading.spec.mask != Everything()}
    return [_without(trial, words) for trial in reversed(different.values())]


def _without(trial: Trial, words: str) -> Trial:
    reading: Any = trial.reading
    roles = {role: argument for role, argument in reading.signature.roles.items() if role != "mask"}
    left = replace(reading, signature=replace(reading.signature, roles=roles))
    intention = trial.intention.noting(words)
    return replace(trial, reading=left, intention=intention, observations=[], refused=[], unsaid=0, known={})


def _is_idle(trial: Trial) -> bool:
    """Whether the last key is seen all the same where the mask argument hides it, and no mask need be given."""
    argument = trial.called.signature.roles.get("mask")
    if argument is None or argument.required or not trial.observations:
        return False
    probe = trial.observations[0].probe
    inputs = probe.inputs.but(may_attend=None, is_token=None, steps=())
    keys = inputs.lengths[1]
    hidden = inputs.but(
        may_attend=np.broadcast_to(np.arange(keys) < keys - 1, (inputs.batch, 1, inputs.lengths[0], keys))
    )
    reading = trial.under(trial.reading.spec.but(mask=Everything())).reading
    try:
        seen, unseen = (reading.observe(one, seed=probe.seed).output for one in (inputs, hidden))
    except (CandidateError, NotApplicable):
        return False
    return np.array_equal(seen, unseen, equal_nan=True)
