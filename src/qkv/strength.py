"""Strength: what a passing check is worth. Every fault of the catalogue is tried on the probes that were run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qkv.diagnosis import Observation, twin
from qkv.faults import CATALOGUE, Fault
from qkv.report import Strength
from qkv.report.worth import SAME_NUMBERS


def strength(observations: Sequence[Observation]) -> Strength:
    """How many faults would have been seen, and why the others could not."""
    cheapest_first = sorted(observations, key=lambda observation: observation.cost)
    asked = [fault for fault in CATALOGUE.values() if not fault.watched]
    blind = []
    with np.errstate(all="ignore"):
        for fault in asked:
            reason = _blindness(fault, cheapest_first)
            if reason:
                blind.append(f"{fault.id}: {reason}")
    return Strength(len(asked) - len(blind), len(asked), blind)


def _blindness(fault: Fault, observations: Sequence[Observation]) -> str | None:
    """Why no probe shows the fault; None where one does."""
    absent = None
    for observation in observations:
        run = observation.expected.run
        missing = fault.absent(run.spec, run.inputs)
        if missing:
            absent = missing
            continue
        for variant in fault.variants(run.spec):
            given = twin(run, variant.replacements)
            if given is not None and observation.expected.agrees(given.output) is None:
                return None
    return absent or SAME_NUMBERS
