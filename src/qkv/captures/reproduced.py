"""The weights of a candidate that can't be read from outside: those under the fault that gives exactly its numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from qkv.captures.assembling import assembled
from qkv.debugger import judge
from qkv.diagnosis import Diagnosis, under
from qkv.errors import CandidateError
from qkv.oracle import Run
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import HeadWeights, given_heads
from qkv.request import Request
from qkv.settling import Trial


def view_of_reproduced(request: Request, unread: CandidateError) -> AttentionView:
    """The weights under the fault that was diagnosed, beside the right ones, on the first input that is wrong.

    Args:
        request: the candidate, and what was said of it.
        unread: why its weights can't be read from outside.

    Raises:
        CandidateError: nothing explains its numbers, so that its weights aren't known.
    """
    seen: list[tuple[Trial, Diagnosis]] = []
    report = judge(replace(request, patch_seconds=0.0), seen=lambda *what: seen.append(what))
    if not seen:
        raise CandidateError(report.why or unread.message, hint=report.hint or unread.hint, detail=report.detail)
    trial, diagnosis = seen[0]
    usable = [one for one in trial.observations if not one.probe.inputs.steps]
    shown = min(usable, key=lambda one: one.comparison.agrees, default=None)
    if shown is None or (diagnosis.best is None and not shown.comparison.agrees):
        hint = f"qkv check {request.to_open} says what is known of it" if request.from_file else "qkv.check says more"
        raise CandidateError(f"its weights can't be read from outside: {unread.message}", hint=hint)
    right = shown.expected.run
    own = right if diagnosis.best is None or shown.comparison.agrees else under(diagnosis.best.variants, right)
    sequence = 0 if shown.comparison.first is None else shown.comparison.first[0]
    name = report.candidate.name
    notes = [f"On the input {shown.probe.name!r}, sequence {sequence}", *trial.intention.assumptions]
    if own is right:
        notes.insert(0, "Its output is right, so these are its weights")
    else:
        faults = " and ".join(fault.title for fault in report.faults)
        notes.insert(0, f"Not read from outside, but computed with the fault that gives exactly its numbers: {faults}")
        if np.array_equal(own.weights, right.weights, equal_nan=True):
            notes.insert(1, "These weights are right: it goes wrong with what comes after them")
    layers = [LayerWeights(name, _heads(own, sequence))]
    if own is not right and own.weights.shape == right.weights.shape:
        own_heads = [head.but(against=f"1.{at}") for at, head in enumerate(layers[0].heads)]
        layers = [LayerWeights(name, own_heads), LayerWeights("right", _heads(right, sequence))]
    return assembled(layers, title=f"attention weights of {name}, {Path(request.file).name}".rstrip(", "), notes=notes)


def _heads(run: Run, sequence: int) -> tuple[HeadWeights, ...]:
    weights = run.weights[sequence]
    sees = np.broadcast_to(run.may_attend, run.weights.shape)[sequence]
    # A fault may give weight to what is hidden.
    return given_heads(weights, may_attend=sees | (weights != 0))
