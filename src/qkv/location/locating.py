"""Locating: the candidate is run once more on an input that shows the fault, and watched while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qkv.adapters.recording import Place, Recording
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.errors import CandidateError
from qkv.location.frontier import Frontier
from qkv.location.source import Source, read
from qkv.location.tracing import Blame, blame
from qkv.oracle import Run
from qkv.recognition import Recognition, recognise
from qkv.report import SourceLine
from qkv.settling import Trial
from qkv.vocabulary import Stage

CLOSENESS = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-3}
"""How far apart equal values may be, as a share of the largest; in float64 some candidates keep a part in float32."""


def located(trial: Trial, diagnosis: Diagnosis) -> SourceLine | str:
    """The line that makes the wrong numbers, or why none can be told.

    Args:
        trial: the reading of the candidate that was judged.
        diagnosis: the faults that reproduce it; it may be empty.
    """
    failing = next((one for one in trial.observations if _can_be_watched(one)), None)
    if failing is None:
        return "only calls that follow each other are wrong, and these are not watched"
    recognition = recognised(trial, diagnosis, failing)
    if recognition is None or not recognition.recording.operations:
        return "it could not be watched while it runs"
    at_fault = () if diagnosis.best is None else diagnosis.best.variants[0].replacements
    frontier = Frontier(recognition, min(at_fault, default=None))
    blamed = blame(frontier)
    if blamed is None:
        return _rivals(frontier)
    line = _line(frontier, blamed, failing.expected.run)
    return line or "what makes the wrong numbers stands in no file of the candidate's"


def _rivals(frontier: Frontier) -> str:
    """Why no line is named, where several are as suspicious as each other."""
    places = [frontier.place(suspect.operation) for suspect in frontier.suspects]
    lines = sorted({place.line for place in places if place is not None})
    if len(lines) < 2:
        return "everything that it does is known to be right but for what it gives"
    told = ", ".join(map(str, lines[:5])) + (" and others" if len(lines) > 5 else "")
    return f"lines {told} are given what is right and make what is not known, and nothing tells between them"


def recognised(trial: Trial, diagnosis: Diagnosis, observation: Observation) -> Recognition | None:
    """What the candidate makes on the input of an observation, under the diagnosed fault too; None if unwatchable."""
    recording = _watched(trial, observation)
    if recording is None:
        return None
    right = observation.expected.run
    with np.errstate(all="ignore"):
        return recognise(recording, right, _under_fault(diagnosis, right), CLOSENESS[trial.dtype])


def _watched(trial: Trial, observation: Observation) -> Recording | None:
    """What the candidate does on the input of an observation; None where it can't be watched."""
    caller = trial.called.caller
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


def _under_fault(diagnosis: Diagnosis, right: Run) -> Run | None:
    """The run under the faults that were diagnosed, with what each stage was given; None for none."""
    if diagnosis.best is None:
        return None
    faulty = under(diagnosis.best.variants, right)
    return faulty.but(before={**right.before, **faulty.before})


def _line(frontier: Frontier, blamed: Blame, right: Run) -> SourceLine | None:
    place = frontier.place(blamed.operation)
    if place is None:
        return None
    source = read(place.file)
    if source is None:
        return SourceLine(place.file, place.line, place.code, _note(frontier, blamed, None))
    line = _number(source, place, frontier, blamed, right)
    code = source.lines[line - 1].strip() if line <= len(source.lines) else place.code
    used_at = None if blamed.used_by is None else frontier.place(blamed.used_by)
    until = None if blamed.skipped is None else source.used_behind(place, used_at)
    until = None if until is not None and until <= line else until
    before = None if blamed.before is None else frontier.place(blamed.before)
    if before is not None and before.file == place.file:
        until = source.line_of(before, None)
    until = None if until == line else until
    return SourceLine(place.file, line, code, _note(frontier, blamed, until), until)


def _number(source: Source, place: Place, frontier: Frontier, blamed: Blame, right: Run) -> int:
    """The number of the line: of the operation itself, or of what it stands on."""
    stage, used_at = frontier.stage, None if blamed.used_by is None else frontier.place(blamed.used_by)
    if blamed.odd and used_at is not None and used_at.file == place.file:
        if source.names_it(used_at, blamed.odd, blamed.besides):
            return source.line_of(used_at, stage)
        return source.wrong_name(used_at, blamed.odd) or source.line_of(place, stage)
    if blamed.skipped == Stage.OUTPUT:
        returned = source.return_behind(place)
        return returned if returned is not None and returned <= place.end_line + 1 else source.line_of(place, stage)
    if blamed.skipped is not None and used_at is not None and used_at.file == place.file:
        reached = {one.line for one in frontier.recognition.recording.places if one.file == place.file}
        condition = source.not_reached(place, used_at.line, reached, blamed.skipped)
        if condition is not None:
            return condition
    if stage == Stage.HEADS and (index := source.wrong_index(place)) is not None:
        return index
    operation = frontier.operation(blamed.operation)
    if operation.name in ("tensor", "as_tensor", "array", "asarray"):
        return source.written_elsewhere(place) or source.line_of(place, stage)
    of_scores = any(sight.name == "attn_scores" for _, sight in frontier.sighted(blamed.operation))
    numbers = {**_right_numbers(right, of_scores), "axis": _key_axes(frontier, blamed.operation)}
    return source.wrong_number(place, operation, numbers) or source.line_of(place, stage)


def _key_axes(frontier: Frontier, operation: int) -> Sequence[int]:
    """Where the axis of the keys stands in what an operation is given, counted from either end."""
    for _, sight in frontier.sighted(operation):
        if sight.axes.count("key") == 1:
            place = sight.axes.index("key")
            return place, place - len(sight.axes)
    return ()


def _right_numbers(right: Run, of_scores: bool) -> Mapping[str, Sequence[float]]:
    """What names hold when they are right, by their role, and what scores, or query and key, are multiplied by."""
    head_dim = right.query.shape[-1]
    scale = abs(right.spec.scale_for(head_dim))
    factors = [scale] if of_scores else [scale, math.sqrt(scale)]
    divisors = [1 / factor for factor in factors]
    bases = [] if right.spec.rope is None else [right.spec.rope.base]
    return {
        "*": factors,
        "/": divisors,
        "**": bases,
        "rope_base": bases,
        "scale": [*factors, *divisors],
        "temperature": divisors,
        "head_dim": [head_dim],
        "embed_dim": [head_dim * right.spec.num_heads],
    }


def _note(frontier: Frontier, blamed: Blame, until: int | None) -> str:
    agree = ": watching it run and its outputs say the same" if _confirmed(frontier, blamed) else ""
    if blamed.skipped is not None:
        between = "" if until is None else f", before line {until} uses it"
        return f"what it makes is right; the stage {blamed.skipped} that belongs behind it is left out{between}{agree}"
    if blamed.before is not None and until is not None:
        return f"line {until} gives it the right numbers, and not as what is done here needs them{agree}"
    if agree:
        return f"what it is given is right, and from here on the numbers are those of the fault{agree}"
    return "what it is given is right, and what it makes no right attention makes"


def _confirmed(frontier: Frontier, blamed: Blame) -> bool:
    """Whether something that is made of it is what the diagnosed fault makes there."""
    faulty = (value for value, sight in enumerate(frontier.recognition.faulty) if sight is not None)
    makers = (frontier.flow.maker(value) for value in faulty)
    return any(
        maker is not None
        and (
            maker == blamed.operation or blamed.operation in frontier.flow.behind([*frontier.operation(maker).results])
        )
        for maker in makers
    )
