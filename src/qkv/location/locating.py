"""Locating: the candidate is run once more on an input that shows the fault, and watched while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qkv.adapters.recording import Place, Recording
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.errors import CandidateError
from qkv.location.calls import called_wrongly
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
    place = _place(frontier, blamed)
    if place is None:
        return None
    source = read(place.file)
    if source is None:
        return SourceLine(place.file, place.line, place.code, _note(frontier, blamed, None))
    line = _number(source, place, frontier, blamed, right)
    code = source.lines[line - 1].strip() if line <= len(source.lines) else place.code
    used_at = _used_at(frontier, blamed)
    if blamed.skipped == Stage.OUTPUT:
        until = source.return_behind(place)
    else:
        until = None if blamed.skipped is None else source.used_behind(place, used_at)
    until = None if until is not None and until <= line else until
    before = None if blamed.before is None else frontier.place(blamed.before)
    if before is not None and before.file == place.file:
        until = source.line_of(before, None)
    until = None if until == line else until
    return SourceLine(place.file, line, code, _note(frontier, blamed, until), until)


def _place(frontier: Frontier, blamed: Blame) -> Place | None:
    """Where the blamed operation stands; of one whose result is used wrongly, in the function that uses it."""
    if blamed.used_by is not None and (blamed.odd or blamed.unused):
        return frontier.beside(blamed.operation, blamed.used_by)
    if blamed.skipped == Stage.OUTPUT and {*frontier.operation(blamed.operation).results} & {
        *frontier.recognition.recording.returned
    }:
        return next(iter(frontier.chain(blamed.operation)), None)
    return called_wrongly(frontier, blamed.operation, blamed.skipped)


def _used_at(frontier: Frontier, blamed: Blame) -> Place | None:
    """Where what the blamed operation makes is used, in the same function if it is there or by a call."""
    return None if blamed.used_by is None else frontier.beside(blamed.used_by, blamed.operation)


def _number(source: Source, place: Place, frontier: Frontier, blamed: Blame, right: Run) -> int:
    """The number of the line: of the operation itself, or of what it stands on."""
    stage, used_at = frontier.stage, _used_at(frontier, blamed)
    if blamed.odd and used_at is not None and used_at.file == place.file:
        return _misplaced(source, frontier, blamed, used_at) or source.line_of(place, stage)
    if stage == Stage.POSITION:
        misnamed = _misnamed(source, place, frontier, right)
        if misnamed is not None:
            return misnamed
    if blamed.skipped is not None and used_at is not None and used_at.file == place.file:
        reached = {one.line for one in frontier.recognition.recording.places if one.file == place.file}
        condition = source.not_reached(place, used_at.line, reached, blamed.skipped)
        if condition is not None:
            return condition
    if blamed.bound:
        return source.bound(place, blamed.bound) or place.line
    if stage == Stage.HEADS and (index := source.wrong_index(place)) is not None:
        return index
    operation = frontier.operation(blamed.operation)
    if stage is None and operation.name in ("dropout", "scaled_dot_product_attention"):
        return source.switched_on(place, operation) or source.line_of(place, Stage.DROPOUT)
    if operation.name in ("tensor", "as_tensor", "array", "asarray"):
        return source.written_elsewhere(place, _right_numbers(right, of_scores=False)) or source.line_of(place, stage)
    given = {sight.of for _, sight in frontier.sighted(blamed.operation)}
    of_scores = "attn_scores" in given or {"query", "key"} <= given
    numbers = {**_right_numbers(right, of_scores), "axis": _key_axes(frontier, blamed.operation)}
    return source.wrong_number(place, operation, numbers) or source.line_of(place, stage)


def _misplaced(source: Source, frontier: Frontier, blamed: Blame, used_at: Place) -> int | None:
    """The line on which an array is first taken for another, from where it is used outwards."""
    within = frontier.place(blamed.used_by) if blamed.used_by is not None else None
    if within is not None and within.file == used_at.file and source.names_it(within, blamed.odd, blamed.besides):
        return source.line_of(within, None)
    if within != used_at and (handed := source.handed_as_another(used_at, blamed.odd)) is not None:
        return handed
    return source.wrong_name(used_at, blamed.odd)


def _misnamed(source: Source, place: Place, frontier: Frontier, right: Run) -> int | None:
    """The line on which a size or base of rope is set that isn't what its name says; None where each is."""
    numbers = _right_numbers(right, of_scores=False)
    for number in sorted(frontier.slice):
        there = frontier.place(number)
        if there is not None and there.file == place.file:
            line = source.misnamed(there, frontier.operation(number), numbers, ("rotary_dims", "rope_base"))
            if line is not None:
                return line
    return None


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
        "slopes": [] if right.spec.alibi is None else list(right.spec.alibi.slopes_for(right.spec.num_heads)),
        "rotary_dims": [] if right.spec.rope is None else [right.spec.rope.rotary_dims(head_dim)],
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
