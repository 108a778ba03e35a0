"""Locating: the candidate is run once more on an input that shows the fault, and watched while it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qkv.adapters.recording import Recording
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.errors import CandidateError
from qkv.location.frontier import Frontier
from qkv.location.lines import source_line
from qkv.location.tracing import blame
from qkv.masks import Causal
from qkv.oracle import Run, run_stages
from qkv.oracle.chunks import in_chunks
from qkv.probes.sizes import SIZE
from qkv.recognition import Recognition, recognise
from qkv.report import SourceLine
from qkv.settling import Trial

CLOSENESS = {"float64": 1e-5, "float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-3}
"""How far apart equal values may be, as a share of the largest; in float64 some candidates keep a part in float32."""


def located(trial: Trial, diagnosis: Diagnosis) -> SourceLine | str:
    """The line that makes the wrong numbers, or why none can be told.

    Args:
        trial: the reading of the candidate that was judged.
        diagnosis: the faults that reproduce it; it may be empty.
    """
    failing = min(filter(_can_be_watched, trial.observations), key=_effort, default=None)
    if failing is None:
        return "only calls of several tokens that follow each other are wrong, and these are not watched"
    recognition = recognised(trial, diagnosis, failing)
    if recognition is None or not recognition.recording.operations:
        return "it could not be watched while it runs"
    at_fault = () if diagnosis.best is None else diagnosis.best.variants[0].replacements
    frontier = Frontier(recognition, min(at_fault, default=None))
    blamed = blame(frontier)
    if blamed is None:
        return _rivals(frontier)
    return source_line(frontier, blamed, _at_once(failing))


def _rivals(frontier: Frontier) -> str:
    """Why no line is named: several are as suspicious as each other, or what was computed can't be seen."""
    if frontier.suspects and frontier.fills_in_numbers(frontier.suspects[0].operation):
        return "an array is filled in number by number, and what these are computed with is not watched"
    if frontier.suspects and frontier.from_nowhere(frontier.suspects[0].operation):
        place = frontier.place(frontier.suspects[0].operation)
        return "" if place is None else f"line {place.line} is given an array that nothing which is watched has made"
    places = [frontier.place(suspect.operation) for suspect in frontier.suspects]
    lines = sorted({place.line for place in places if place is not None})
    if len(lines) < 2:
        return "each step that is known in it is right, and only what it gives in the end is not"
    told = ", ".join(map(str, lines[:5])) + (" and others" if len(lines) > 5 else "")
    return f"lines {told} are given what is right and make what is not known, and nothing tells between them"


def recognised(trial: Trial, diagnosis: Diagnosis, observation: Observation) -> Recognition | None:
    """What the candidate makes on the input of an observation, under the diagnosed fault too; None if unwatchable."""
    recording = _watched(trial, observation)
    if recording is None:
        return None
    right = _at_once(observation)
    with np.errstate(all="ignore"):
        return recognise(recording, right, _under_fault(diagnosis, right), CLOSENESS[trial.dtype])


def _watched(trial: Trial, observation: Observation) -> Recording | None:
    """What the candidate does on the input of an observation; None where it can't be watched."""
    caller = trial.called.caller
    caller.watch = True
    try:
        trial.under(observation.expected.run.spec).reading.observe(
            observation.probe.inputs, seed=observation.probe.seed
        )
    except CandidateError:
        return None
    finally:
        caller.watch = False
    return caller.recording


def _effort(observation: Observation) -> tuple[int, bool, int]:
    """What is watched first: one call, in the sizes that most probes have; of other sizes the smallest that fails."""
    probe = observation.probe
    return len(probe.inputs.steps), probe.kind == SIZE, observation.cost if probe.kind == SIZE else 0


def _can_be_watched(observation: Observation) -> bool:
    """Whether it is wrong, and its sequence handed over at once or token by token: of several one can't be told."""
    inputs = observation.probe.inputs
    return not observation.comparison.agrees and {*inputs.steps} <= {1} and inputs.earlier is None


def _at_once(observation: Observation) -> Run:
    """The run that is meant, of the whole sequence at once: a token that came by itself sees none that follow it."""
    run = observation.expected.run
    if not in_chunks(run.inputs):
        return run
    spec = run.spec if run.spec.masks(Causal) else replace(run.spec, mask=run.spec.mask & Causal())
    return run_stages(spec, run.inputs.but(steps=()))


def _under_fault(diagnosis: Diagnosis, right: Run) -> Run | None:
    """The run under the faults that were diagnosed, with what each stage was given; None for none."""
    if diagnosis.best is None:
        return None
    faulty = under(diagnosis.best.variants, right)
    return faulty.but(before={**right.before, **faulty.before})
