"""Strength of a check of gradients: which faults of the backward pass its probes would have shown."""

from __future__ import annotations

from collections.abc import Sequence

from qkv.diagnosis import IMPOSSIBLE
from qkv.faults import GRADIENT_FAULTS, Fault
from qkv.gradients.comparison import GradientObservation, off
from qkv.oracle import BackwardReplacements
from qkv.report import Strength
from qkv.report.worth import SAME_NUMBERS


def with_gradient_faults(strength: Strength, observations: Sequence[GradientObservation]) -> Strength:
    """The strength of the check of the output, with the faults of the backward pass counted in."""
    asked = [fault for fault in GRADIENT_FAULTS.values() if not fault.watched]
    blind = [f"{fault.id}: {reason}" for fault in asked if (reason := _blindness(fault, observations))]
    return Strength(
        strength.would_catch + len(asked) - len(blind), strength.of + len(asked), [*strength.blind_to, *blind]
    )


def _blindness(fault: Fault, observations: Sequence[GradientObservation]) -> str | None:
    """Why no probe shows the fault; None where one does."""
    absent = None
    for observation in observations:
        run = observation.expected.run
        missing = fault.absent(run.spec, run.inputs)
        absent = missing or absent
        if not missing and any(_shows(observation, variant.backward) for variant in fault.variants(run.spec)):
            return None
    return absent or SAME_NUMBERS


def _shows(observation: GradientObservation, replacements: BackwardReplacements) -> bool:
    expected = observation.expected
    try:
        given = expected.under(replacements)
    except IMPOSSIBLE:
        return False
    return any(
        bool((off(given[name], expected.right[name]).max(axis=-1, initial=0.0) > expected.tolerance[name]).any())
        for name in observation.compared
    )
