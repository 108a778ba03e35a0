"""Estimation: the number that a candidate has where another should stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from qkv.comparison import Floats
from qkv.diagnosis.observation import Observation
from qkv.diagnosis.twins import twin
from qkv.faults import CATALOGUE, Family, Variant
from qkv.faults.scopes import scoped

PATIENCE = 5
"""Steps after which an estimation that got nowhere near is given up."""

SMALLEST = 1e-9
"""Estimates nearer to zero than this say that the number isn't there at all, which is another fault."""


def families(screen: Observation, telling: Observation, cached: bool) -> Iterator[tuple[Variant, ...]]:
    """Faults with the number that gives the screen's output.

    Args:
        screen: the failing probe that all are tried on.
        telling: the probe that the number is named by.
        cached: whether some of several calls may have the fault, and the others not.
    """
    run, elsewhere = screen.expected.run, telling.expected.run.inputs
    for fault in CATALOGUE.values():
        for family in () if fault.absent(run.spec, run.inputs) else fault.families:
            value = estimate(family, screen)
            if value is not None and abs(value) > SMALLEST and family.accepts(value):
                here, there = (family.note(run.spec, inputs, value) for inputs in (run.inputs, elsewhere))
                note = here if " = " not in here else there
                variant = Variant(fault, family.replacements(value), note, estimated=True)
                yield from ((one,) for one in (variant, *(scoped(variant) if cached else ())))
        if fault.further is not None and not fault.absent(run.spec, run.inputs):
            yield from ((Variant(fault, way, note),) for note, way in fault.further(run))


Residual = Callable[[float], Floats | None]


def estimate(family: Family, observation: Observation) -> float | None:
    """The number for which the family gives the candidate's output; None where none does.

    Gauss-Newton with a numerical derivative, from the start that comes nearest.
    """
    judged = observation.expected.judged[..., None]
    target = observation.comparison.got

    def residual(value: float) -> Floats | None:
        given = twin(observation.expected.run, family.replacements(value))
        if given is None:
            return None
        rows = given.output.reshape(target.shape)
        difference = np.where(judged, rows - target, 0.0)
        return difference if np.isfinite(difference).all() else None

    tried = [(float(np.sum(error**2)), start) for start in family.starts if (error := residual(start)) is not None]
    for _, value in sorted(tried)[:2]:
        value = _refined(residual, value)
        error = residual(value)
        if error is not None and (np.abs(error).max(axis=-1) <= observation.expected.tolerance).all():
            return value
    return None


def _refined(error_at: Residual, value: float) -> float:
    begin: float | None = None
    for turn in range(30):
        here = error_at(value)
        step = 1e-6 * max(abs(value), 1e-3)
        ahead = error_at(value + step)
        if here is None or ahead is None:
            return value
        off = float(np.sum(here**2))
        begin = off if begin is None else begin
        if turn == PATIENCE and off > 0.5 * begin:
            return value
        slope = (ahead - here) / step
        steepness = float(np.sum(slope**2))
        if steepness == 0.0:
            return value
        move = -float(np.sum(slope * here)) / steepness
        value, moved = _damped(error_at, value, move, off)
        if abs(moved) <= 1e-13 * max(abs(value), 1e-9):
            return value
    return value


def _damped(error_at: Residual, value: float, move: float, before: float) -> tuple[float, float]:
    for _ in range(8):
        error = error_at(value + move)
        if error is not None and float(np.sum(error**2)) <= before:
            return value + move, move
        move /= 4
    return value, 0.0
