"""Locating: the candidate is run once more on an input that shows the fault, and watched while it runs."""

from __future__ import annotations

import math

import numpy as np

from qkv.adapters.recording import Operation, Place, Recording
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.errors import CandidateError, ShapeError
from qkv.location.frontier import Frontier
from qkv.location.source import Source, read
from qkv.location.tracing import Blame, blame
from qkv.oracle import Run
from qkv.recognition import recognise
from qkv.report import SourceLine
from qkv.settling import Trial
from qkv.vocabulary import Stage

CLOSENESS = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-3}
"""How far apart equal values may be, as a share of the largest; in float64 some candidates keep a part in float32."""


def located(trial: Trial, diagnosis: Diagnosis) -> SourceLine | None:
    """The line that makes the wrong numbers; None where it can't be told.

    Args:
        trial: the reading of the candidate that was judged.
        diagnosis: the faults that reproduce it; it may be empty.
    """
    failing = next((one for one in trial.observations if _can_be_watched(one)), None)
    if failing is None:
        return None
    recording = watched(trial, failing)
    if recording is None or not recording.operations:
        return None
    stage, faulty = _under_fault(diagnosis, failing.expected.run)
    with np.errstate(all="ignore"):
        recognition = recognise(recording, failing.expected.run, faulty, CLOSENESS[trial.dtype])
    frontier = Frontier(recognition, stage)
    blamed = blame(frontier)
    return None if blamed is None else _line(recording, blamed, stage, failing.expected.run)


def watched(trial: Trial, observation: Observation) -> Recording | None:
    """What the candidate does on the input of an observation; None where it can't be watched."""
    caller = trial.reading.caller
    caller.watch = True
    try:
        trial.reading.observe(observation.probe.inputs, seed=observation.probe.seed)
    except CandidateError:
        return None
    finally:
        caller.watch = False
    return caller.recording


def _can_be_watched(observation: Observation) -> bool:
    return not observation.comparison.agrees and not observation.probe.inputs.steps


def _under_fault(diagnosis: Diagnosis, right: Run) -> tuple[Stage | None, Run | None]:
    """The stage of the first fault that was diagnosed, and the run under all of them."""
    if diagnosis.best is None:
        return None, None
    variants = diagnosis.best.variants
    first = min((stage for variant in variants for stage in variant.replacements), default=None)
    try:
        with np.errstate(all="ignore"):
            faulty = under(variants, right)
    except (ShapeError, ValueError, IndexError):
        return first, None
    return first, faulty.but(before={**right.before, **faulty.before})


def _line(recording: Recording, blamed: Blame, stage: Stage | None, right: Run) -> SourceLine | None:
    operation = recording.operations[blamed.operation]
    if operation.place is None:
        return None
    place = recording.places[operation.place]
    source = read(place.file)
    if source is None:
        return SourceLine(place.file, place.line, place.code, _note(blamed))
    line = _number(source, place, operation, blamed, stage, right)
    code = source.lines[line - 1].strip() if line <= len(source.lines) else place.code
    return SourceLine(place.file, line, code, _note(blamed))


def _number(source: Source, place: Place, operation: Operation, blamed: Blame, stage: Stage | None, right: Run) -> int:
    if blamed.skipped is None:
        elsewhere = source.definition(place, operation, _right_numbers(right))
        if elsewhere is not None:
            return elsewhere
    if blamed.skipped == Stage.OUTPUT:
        return source.return_behind(place) or source.line_of(place, stage)
    return source.line_of(place, stage)


def _right_numbers(right: Run) -> list[float]:
    """Numbers that a right attention multiplies or divides by, or takes to a power."""
    scale = abs(right.spec.scale_for(right.query.shape[-1]))
    numbers = [scale, 1 / scale, math.sqrt(scale), 1 / math.sqrt(scale)]
    if right.spec.softcap is not None:
        numbers.append(right.spec.softcap)
    if right.spec.rope is not None:
        numbers.append(right.spec.rope.base)
    return numbers


def _note(blamed: Blame) -> str:
    if blamed.skipped is not None:
        return f"what it makes is right, and the stage {blamed.skipped} that belongs behind it is left out"
    if blamed.confirmed:
        return "what it is given is right; from here on the numbers are those of the fault"
    return "what it is given is right, and what it makes is no step of the attention that is meant"
