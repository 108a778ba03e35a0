"""Judging of gradients: the probes of the backward pass run one after another, and what is known at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.diagnosis import Observation, diagnose
from qkv.errors import CandidateError
from qkv.findings import report_on
from qkv.gradients.comparison import GradientExpectation, GradientObservation, off
from qkv.gradients.diagnosis import diagnose_gradients
from qkv.gradients.findings import right_report, watched_report, wrong_report
from qkv.gradients.probes import GradientProbe, gradient_probes, several_blocks, wide_heads
from qkv.report import ProbeResult, Report, Verdict
from qkv.settling import Trial

NO_BACKWARD = "its output is right; it computes with NumPy, which has no backward pass to judge"
OUTPUT_FIRST = "gradients were not judged: the output comes first"
NO_KEY = "a row of it sees no key, and what such a row passes back is not said"


@dataclass
class Backwards:
    """What came of the probes of the backward pass.

    Attributes:
        observations: those that ran.
        skipped: those that could not be asked, with the reason.
        output: the first probe on which the output itself is wrong; None where there is none.
        raised: the probes on which the backward pass raised an error, and the error.
    """

    observations: list[GradientObservation] = field(default_factory=list)
    skipped: list[ProbeResult] = field(default_factory=list)
    output: Observation | None = None
    raised: list[tuple[GradientProbe, CandidateError]] = field(default_factory=list)


def with_gradients(report: Report, trial: Trial) -> Report:
    """The report, with the verdict on the gradients in it.

    Args:
        report: the report on the output. Where that is not right, the gradients are not looked at.
        trial: the reading that it is about.
    """
    if report.verdict is not Verdict.RIGHT:
        return replace(report, assumptions=[*report.assumptions, OUTPUT_FIRST])
    if trial.reading.facts.framework != "torch":
        return replace(report, verdict=Verdict.UNDECIDED, why=NO_BACKWARD, hint="leave --gradients out")
    with np.errstate(all="ignore"):
        seen = run_backwards(trial)
        return _reported(report, trial, seen)


def run_backwards(trial: Trial) -> Backwards:
    """Every probe of the backward pass, until one ends it all."""
    seen = Backwards()
    for on, probe in _asked(trial):
        _ask(on, probe, seen)
        if seen.output is not None or any(error.fatal for _, error in seen.raised):
            break
    return seen


def _asked(trial: Trial) -> Iterator[tuple[Trial, GradientProbe]]:
    able = trial.reading.abilities
    for probe in chain(gradient_probes(trial.setting), several_blocks(trial.setting)):
        yield trial, probe
    if able.free_sizes:
        wide = trial.resized(able.num_heads, able.num_kv_heads, 256, 256)
        for probe in wide_heads(wide.setting):
            yield wide, probe


def _ask(trial: Trial, probe: GradientProbe, seen: Backwards) -> None:
    """Nothing; one probe, of the output first and then of its gradients."""
    try:
        output = trial.observe(probe.probe)
    except (NotApplicable, CandidateError) as error:
        seen.skipped.append(_skipped(probe, str(error)))
        return
    if not output.comparison.agrees:
        # Other sizes may be none that it is meant for.
        if probe.probe.optional:
            seen.skipped.append(_skipped(probe, "its output is not right there"))
        else:
            seen.output = output
        return
    run = output.expected.run
    settled = trial.judge_empty_rows and run.spec.empty_row != "nan"
    if not settled and not run.spec.sinks and not run.may_attend.any(axis=-1).all():
        seen.skipped.append(_skipped(probe, NO_KEY))
        return
    expected = GradientExpectation(
        run, probe.cotangent_for(run.output.shape), trial.reading.named, output.expected.held_to
    )
    try:
        got = trial.reading.gradients(probe.probe.inputs, expected.cotangent, probe.memory, seed=probe.probe.seed)
    except CandidateError as error:
        seen.raised.append((probe, error))
        return
    seen.observations.append(GradientObservation(probe, expected, got))


def _skipped(probe: GradientProbe, why: str) -> ProbeResult:
    return ProbeResult(probe.probe.name, probe.probe.exposes, None, None, None, why)


def _reported(report: Report, trial: Trial, seen: Backwards) -> Report:
    if seen.output is not None:
        trial.observations.append(seen.output)
        return report_on(trial.reading.facts, trial, diagnose(trial.observations), report.repeat)
    skipped = [*seen.skipped, *(_skipped(probe, error.message) for probe, error in seen.raised)]
    base = replace(report, probes=[*report.probes, *skipped])
    fatal = next((error.message for _, error in seen.raised if error.fatal), "")
    if fatal or not (seen.observations or seen.raised):
        why = f"its output is right; of its gradients nothing is known: {fatal or 'no probe of them could be asked'}"
        return replace(base, verdict=Verdict.UNDECIDED, why=why)
    if _differ_from_run_to_run(seen.observations):
        note = "one probe was asked twice, under other random numbers"
        return watched_report(base, "gradient-random", note, seen.observations)
    if not all(observation.agrees for observation in seen.observations):
        return wrong_report(base, seen.observations, diagnose_gradients(seen.observations))
    if seen.raised:
        probe, error = seen.raised[0]
        failed = replace(base, detail=error.detail, hint=error.hint)
        return watched_report(
            failed, "gradient-fails", f"with the probe {probe.name!r}, {error.message}", seen.observations
        )
    return right_report(base, seen.observations)


def _differ_from_run_to_run(observations: list[GradientObservation]) -> bool:
    again = next((one for one in observations if one.probe.name == "again"), None)
    first = next((one for one in observations if again and one.probe.probe.inputs is again.probe.probe.inputs), None)
    if again is None or first is None:
        return False
    tolerance = again.expected.tolerance
    return any(
        bool((off(first.got.of[name], again.got.of[name]).max(axis=-1, initial=0.0) > tolerance[name]).any())
        for name in again.compared
    )
