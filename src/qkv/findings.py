"""Findings: what is known of a candidate at the end, put into the report's document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qkv.adapters.messages import Facts
from qkv.adapters.names import call_role_of
from qkv.adapters.opening import kind_of
from qkv.diagnosis import Diagnosis, Explanation, Observation
from qkv.errors import CandidateError, as_asked
from qkv.faults import CATALOGUE, Variant
from qkv.faults.spelling import spelled
from qkv.inference import window_named
from qkv.masks import SlidingWindow
from qkv.probes.sizes import SIZE
from qkv.report import CandidateWords, NamedFault, ProbeResult, Report, Verdict
from qkv.report.example import example_of
from qkv.settling import Trial
from qkv.shrinking import smallest
from qkv.size_rules import AXES
from qkv.size_sweep import SizeSweep
from qkv.spread import describe_spread
from qkv.strength import strength
from qkv.whereabouts import Inside, pictured, whereabouts, wrong_heads

UNEXPLAINED = "no fault of the catalogue, and no pair of them, gives these numbers"
MOST_STEPS = 7
"""Steps of a sequence that are written out."""


def words_of(facts: Facts, dtype: str = "") -> CandidateWords:
    """What was judged, in words."""
    return CandidateWords(facts.name, facts.file, facts.line, kind_of(facts), facts.framework, dtype)


def failed(words: CandidateWords, error: CandidateError, repeat: str) -> Report:
    """The report on a candidate that could not be run."""
    hint = as_asked(error.hint, repeat)
    return Report(Verdict.FAILED, words, why=error.message, hint=hint, detail=error.detail, repeat=repeat)


def _alone(facts: Facts) -> list[str]:
    """That other attentions of the file were not judged, where the user has named none."""
    return [f"{facts.name} alone is judged; also in this file: {', '.join(facts.beside)}"] if facts.beside else []


def report_on(facts: Facts, trial: Trial, diagnosis: Diagnosis, repeat: str, sweep: SizeSweep | None = None) -> Report:
    """The report on a candidate that was run, at many sizes perhaps."""
    base: dict[str, Any] = {
        "candidate": words_of(facts, trial.dtype),
        "spec": trial.reading.spec,
        "assumptions": [*trial.intention.assumptions, *trial.reading.assumptions, *cache_words(trial), *_alone(facts)],
        "probes": [*probe_results(trial), *(size_results(sweep) if sweep is not None else ())],
        "repeat": repeat,
        "printed": trial.printed,
    }
    if trial.wrong:
        return _wrong(trial, diagnosis, base, sweep)
    if sweep is not None and sweep.ended is not None and sweep.ended[1].crash:
        size, error = sweep.ended
        why = f"right wherever it ran, but at {size}: {error.message}"
        return Report(Verdict.WRONG, why=why, hint=error.hint, detail=error.detail, **base)
    base["spread"] = "every row is right"
    base["strength"] = strength(trial.observations)
    if trial.changed:
        return Report(Verdict.WRONG, faults=[_inputs_changed(trial)], **base)
    left = next((error for probe, error in trial.refused if probe.inputs.earlier is not None and error.detail), None)
    if left is not None and any(map(_uses_its_cache, trial.observations)):
        why = f"right for one sequence; after its own way of emptying its cache the next one fails: {left.message}"
        note = "of the sequence before, which was emptied in part"
        fault = _named_fault(Variant(CATALOGUE["cache-other-sequence"], {}, note), 0.0)
        return Report(Verdict.WRONG, why=why, detail=left.detail, faults=[fault], **base)
    broken = trial.broken
    if broken is not None:
        probe, error = broken
        why = f"right wherever it ran, but it could not be called with the probe {probe.name!r}: {error.message}"
        return Report(Verdict.UNDECIDED, why=why, hint=error.hint, detail=error.detail, **base)
    if base["strength"].would_catch == 0:
        why = "under this spec no row is left that could be wrong"
        return Report(
            Verdict.UNDECIDED, why=why, hint="look at the mask; --empty-row zero judges rows without keys", **base
        )
    name = window_named(facts)
    if name and "mask" not in trial.intention.stated and not trial.reading.spec.masks(SlidingWindow):
        why = f"right without a window, and the name {name} speaks of one; nothing says how wide it is meant to be"
        return Report(Verdict.UNDECIDED, why=why, hint="--window 4 judges it with a window of 4 keys", **base)
    return Report(Verdict.RIGHT, **base)


def _wrong(trial: Trial, diagnosis: Diagnosis, base: dict[str, Any], sweep: SizeSweep | None) -> Report:
    wrong = [observation for observation in trial.observations if not observation.comparison.agrees]
    failing = min(wrong, key=lambda observation: bool(observation.probe.inputs.steps))
    inside, faults = Inside(failing, diagnosis), named_faults(diagnosis.best)
    if trial.changed:
        faults = [_inputs_changed(trial), *faults]
    if diagnosis.undeclared is not None and not trial.changed:
        option = diagnosis.undeclared
        why = f"it is right with {option.words}; {option.half_said or 'nothing says that it is meant to have that'}"
        hint = f"if that is meant: {option.flag}; if it is not, it is wrong"
        return Report(Verdict.UNDECIDED, why=why, hint=hint, spread=_spread(inside), **base)
    right_at_once = bool(failing.probe.inputs.steps)
    elsewhere_right = right_at_once or (sweep is not None and not all(sweep.evidence.values()))
    if not faults and not trial.intention.is_meant and not diagnosis.untold and not elsewhere_right:
        why = "its numbers are not those of what it seems to be meant for, nor of any fault of that"
        hint = "say what is meant, with flags or --spec FILE; if this is it (see 'held to'), it is wrong"
        return Report(Verdict.UNDECIDED, why=why, hint=hint, spread=_spread(inside), **base)
    if not faults and trial.doubts and not elsewhere_right:
        why = f"its numbers are not the expected ones, and {trial.doubts[0].why}"
        return Report(Verdict.UNDECIDED, why=why, hint=trial.doubts[0].hint, spread=_spread(inside), **base)
    where = whereabouts(inside)
    open_question = _of_its_cache(trial, wrong, faults) if right_at_once else None
    if open_question is not None:
        why, hint = open_question
        base |= {"first_disagreement": where.first, "rows": where.rows, "wrong": _wrong_rows(failing)}
        return Report(Verdict.UNDECIDED, why=why, hint=hint, spread=_spread(inside), faults=faults, **base)
    by_size = failing.probe.name.startswith(SIZE)  # which is small already
    shown = failing if by_size else smallest(trial, diagnosis) or failing
    return Report(
        Verdict.WRONG,
        first_disagreement=where.first,
        rows=where.rows,
        spread=_spread(inside),
        wrong=_wrong_rows(failing),
        only_when=None if sweep is None else sweep.only_when,
        faults=faults,
        alternatives=named_alternatives(diagnosis),
        example=example_of(shown.expected.run, shown.output),
        matrices=pictured(inside)[:1],
        by_hand=pictured(inside if shown is failing else Inside(shown, diagnosis)),
        why="" if faults else diagnosis.untold or _unexplained(failing),
        **base,
    )


def _of_its_cache(trial: Trial, wrong: Sequence[Observation], faults: Sequence[NamedFault]) -> tuple[str, str] | None:
    """Why it can't be said of a candidate that is right at once whether it is wrong, and what would settle it."""
    only_in_chunks = all(observation.probe.kind == "chunked-prefill" for observation in wrong)
    if only_in_chunks and ONE_TOKEN_APART.search(trial.reading.facts.source):
        named = f" ({faults[0].id}: {faults[0].title})" if faults else ""
        return (
            f"right at once and token by token; several tokens behind a filled cache give other numbers{named}, "
            "and its source handles a single token apart",
            "if several tokens never come behind a filled cache it is right, otherwise it is wrong",
        )
    if faults or any(map(_uses_its_cache, trial.observations)):
        return None
    return (
        "right when it is given the whole sequence; bit by bit, with its cache, its numbers are other ones",
        "no fault explains them: if its cache is used as it is meant to be (see 'held to'), it is wrong",
    )


def _uses_its_cache(observation: Observation) -> bool:
    """Whether tokens behind a filled cache are right: then it is used as it is meant to be."""
    steps = observation.probe.inputs.steps
    if len(steps) < 2:
        return False
    wrong, judged = observation.comparison.wrong, observation.expected.judged
    right = [not wrong[:, query].any() and judged[:, query].any() for query in range(judged.shape[1])]
    return any(right[steps[0] :])


def _unexplained(failing: Observation) -> str:
    if not failing.probe.inputs.steps:
        return UNEXPLAINED
    return f"right when it is given the whole sequence, and with its cache at other places; {UNEXPLAINED}"


ONE_TOKEN_APART = re.compile(
    r"\b\w*(len|tokens|seq|new|steps?|q|t|n)\w*\s*(>|==|!=|<=)\s*1\b|shape\[-?\d\]\s*(>|==|!=|<=)\s*1\b|"
    r"is_causal\s*=\s*(?!True|False)",
    re.IGNORECASE,
)
"""What code looks like that tells the call for one new token from that for a prompt."""


def cache_words(trial: Trial) -> list[str]:
    """What was done with the candidate's cache, in a sentence; nothing where nothing speaks of one."""
    how = {"handed": "handed over with each call", "kept": "kept by itself"}.get(trial.reading.abilities.cached)
    if how is None:
        return []
    ran = [observation.probe.inputs.steps for observation in trial.observations if observation.probe.inputs.steps]
    if ran:
        shown = ", ".join(_in_steps(steps) for steps in dict.fromkeys(ran) if len(steps) <= MOST_STEPS)
        return [f"its cache, {how}, was used for tokens that came bit by bit: {shown}"]
    why = next((f": {error.message}" for probe, error in trial.refused if probe.inputs.steps), "")
    return [f"its cache was not used{why}"]


def _spread(inside: Inside) -> str:
    failing = inside.observation
    heads, steps = wrong_heads(inside), failing.probe.inputs.steps
    spread = describe_spread(failing.comparison.wrong, failing.expected.judged, heads)
    return f"{spread}; the tokens came as {_in_steps(steps)}" if steps else spread


def _in_steps(steps: Sequence[int]) -> str:
    """The numbers of tokens that a sequence comes in, in words; many calls are not counted out."""
    return " + ".join(map(str, steps)) if len(steps) <= MOST_STEPS else f"{steps[0]} + {steps[1]} + … + {steps[-1]}"


def _wrong_rows(failing: Observation) -> list[list[bool]]:
    place = failing.comparison.first
    assert place is not None
    return [[bool(row) for row in head] for head in failing.comparison.wrong[place[0]].T]


def named_faults(explanation: Explanation | None) -> list[NamedFault]:
    """The faults of an explanation, as the report says them."""
    if explanation is None:
        return []
    return [_named_fault(variant, explanation.error) for variant in explanation.variants]


def named_alternatives(diagnosis: Diagnosis) -> list[NamedFault]:
    """The faults of its other explanations, as the report says them: each once, and none that is named first."""
    first = () if diagnosis.best is None else diagnosis.best.ids
    others: dict[str, NamedFault] = {}
    for fault in (fault for other in diagnosis.alternatives for fault in named_faults(other)):
        if fault.id not in first:
            others.setdefault(fault.id, fault)
    return list(others.values())


def in_own_words(report: Report, framework: str, layout: str) -> Report:
    """The report with its advice in the candidate's framework, and for a function in its own order of axes."""

    def own(faults: Sequence[NamedFault]) -> Sequence[NamedFault]:
        return [replace(fault, repair=spelled(fault.repair, framework, layout)) for fault in faults] or faults

    return replace(report, faults=own(report.faults), alternatives=own(report.alternatives))


def _named_fault(variant: Variant, error: float) -> NamedFault:
    fault, own = variant.fault, variant.replacements if variant.estimated else {}
    words = fault.id, str(fault.stage), fault.title, fault.explanation, fault.repair, variant.note
    return NamedFault(*words, error, own)


def _inputs_changed(trial: Trial) -> NamedFault:
    changed = ", ".join(sorted(trial.changed))
    masks = all(call_role_of(name) in ("mask", "padding") for name in trial.changed)
    fault = CATALOGUE["mask-mutated" if masks else "inputs-changed"]
    return _named_fault(Variant(fault, {}, f"changed: {changed}"), 0.0)


def probe_results(trial: Trial) -> list[ProbeResult]:
    """Every probe, those that could not be run too."""
    ran = [
        ProbeResult(
            observation.probe.name,
            observation.probe.exposes,
            observation.comparison.agrees if observation.expected.judged.any() else None,
            observation.comparison.max_error,
            float(observation.expected.tolerance.max()),
            "" if observation.expected.judged.any() else "no row of it counts",
        )
        for observation in trial.observations
    ]
    refused = [
        ProbeResult(probe.name, probe.exposes, None, None, None, error.message) for probe, error in trial.refused
    ]
    return ran + refused


def size_results(sweep: SizeSweep) -> list[ProbeResult]:
    """All sizes as one probe, and those that were refused as another."""
    exposes = "last blocks and single sizes"
    found = [ProbeResult(SIZE, exposes, not sweep.wrong, None, None, f"{len(sweep.evidence)} sizes")]
    if sweep.refused:
        error = next(iter(sweep.refused.values()))
        found.append(ProbeResult("some sizes", exposes, None, None, None, f"{_refused(sweep)}: {error.message}"))
    return found if sweep.evidence else found[1:]


def _refused(sweep: SizeSweep) -> str:
    """The sizes that were refused: by the number that they share and no other has, or by the first."""
    for axis in AXES:
        always = {getattr(size, axis) for size in sweep.refused} - {getattr(size, axis) for size in sweep.evidence}
        if all(getattr(size, axis) in always for size in sweep.refused):
            return f"{axis} {', '.join(str(number) for number in sorted(always))}"
    return f"{len(sweep.refused)} of them, the first {next(iter(sweep.refused))}"
