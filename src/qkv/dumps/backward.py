"""The gradients in a dump, beside those that the oracle passes back from the dump's own gradient of the output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qkv.adapters.pullback import Gradients
from qkv.comparison import Floats
from qkv.dumps.observed import DumpReading, merged
from qkv.errors import CandidateError
from qkv.gradients.comparison import GradientExpectation, GradientObservation
from qkv.gradients.diagnosis import diagnose_gradients
from qkv.gradients.findings import right_report, wrong_report
from qkv.gradients.probes import GradientProbe
from qkv.oracle import Run
from qkv.probes import Probe
from qkv.report import ProbeResult, Report, Verdict

GIVEN = ("query", "key", "value")
WHOLE = "a NaN or a query without keys reaches them, and what is passed back there is not said"
NO_COTANGENT = "the gradient of the output is not in the dump: --tensor grad_output=NAME"


def with_gradients_of(report: Report, reading: DumpReading, run: Run, held_to: str) -> Report:
    """The report on a dump whose output is right, with the verdict on the gradients in it.

    Args:
        report: the report on the output.
        reading: how the dump was read.
        run: the oracle's run on its inputs.
        held_to: the dtype whose rounding is allowed for.
    """
    names = [name for name in GIVEN if f"grad_{name}" in reading.dump.tensors]
    if not names or report.verdict is not Verdict.RIGHT:
        return report
    reason = "" if "grad_output" in reading.dump.tensors else NO_COTANGENT
    if not (reading.untouched(run).all() and run.may_attend.any(axis=-1).all()):
        reason = WHOLE
    if reason:
        skipped = ProbeResult("gradients in the dump", "the backward pass", None, None, None, reason)
        return replace(report, probes=[*report.probes, skipped])
    observation = _observed(reading, run, names, held_to)
    if observation.agrees:
        return right_report(report, [observation])
    return wrong_report(report, [observation], diagnose_gradients([observation]))


def _observed(reading: DumpReading, run: Run, names: list[str], held_to: str) -> GradientObservation:
    cotangent = merged(_as(reading, "grad_output", "output"))

    def named(of: Mapping[str, Floats]) -> Mapping[str, Floats]:
        return {name: of[name] for name in names}

    probe = GradientProbe(Probe("dump", "the backward pass", run.inputs), lambda shape: cotangent)
    got = Gradients({name: _as(reading, f"grad_{name}", name) for name in names}, frozenset())
    return GradientObservation(probe, GradientExpectation(run, cotangent, named, held_to), got)


def _as(reading: DumpReading, role: str, like: str) -> Floats:
    """A gradient with the axes of what it is the gradient of.

    Raises:
        CandidateError: its shape is another.
    """
    tensor, of = reading.dump.tensors[role], reading.dump.tensors[like]
    if tensor.array.shape != of.array.shape:
        message = f"{tensor.name} has shape {tensor.array.shape}, and {of.name}, whose gradient it is, {of.array.shape}"
        raise CandidateError(message, hint=f"another tensor: --tensor {role}=NAME")
    whole = reading.arrangement
    turned = {"query": whole.query, "output": whole.output}.get(like, whole.key)
    return np.ascontiguousarray(turned(tensor.array))
