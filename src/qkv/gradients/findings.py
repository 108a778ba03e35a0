"""Findings on gradients, put into the report's document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qkv.comparison import Bools
from qkv.diagnosis import Diagnosis, Explanation
from qkv.faults import GRADIENT_FAULTS, Variant
from qkv.findings import named_alternatives, named_faults
from qkv.gradients.comparison import GradientComparison, GradientObservation
from qkv.gradients.strength import with_gradient_faults
from qkv.report import Disagreement, ProbeResult, Report, RowPair, Verdict
from qkv.spread import describe_spread

_SHORT = {"query": "dq", "key": "dk", "value": "dv"}


def tensor_of(name: str) -> str:
    """What the field calls a gradient: ``dq``, ``dx``, ``dW_query.weight``."""
    return _SHORT.get(name, f"d{name}")


def right_report(base: Report, observations: Sequence[GradientObservation]) -> Report:
    """The report where every gradient is right."""
    strength = None if base.strength is None else with_gradient_faults(base.strength, observations)
    return replace(base, probes=[*base.probes, *probe_results(observations)], strength=strength)


def watched_report(base: Report, fault: str, note: str, observations: Sequence[GradientObservation]) -> Report:
    """The report on a backward pass whose fault is not one of numbers."""
    named = named_faults(Explanation((Variant(GRADIENT_FAULTS[fault], {}, note),), 0.0))
    probes = [*base.probes, *probe_results(observations)]
    return replace(base, verdict=Verdict.WRONG, faults=named, probes=probes, strength=None)


def wrong_report(base: Report, observations: Sequence[GradientObservation], diagnosis: Diagnosis) -> Report:
    """The report where a gradient is wrong: which, where first, and what gives these numbers."""
    failing = next(observation for observation in observations if not observation.agrees)
    first = next(comparison for comparison in failing.compared.values() if not comparison.agrees)
    in_general = _by_watching(failing)
    best = diagnosis.best or in_general
    # Beside a particular fault stands what it is a kind of, for whoever knows the general name only.
    others = (*diagnosis.alternatives, *([in_general] if best is not in_general else []))
    place = as_place(first.first)
    title = f"gradient of {first.name}, {_row_in_words(first)}"
    return replace(
        base,
        verdict=Verdict.WRONG,
        first_disagreement=Disagreement(
            failing.probe.probe.name, place[0], place[1], place[2], None, place[3],
            float(first.right[first.first]), float(first.got[first.first]), tensor_of(first.name),
        ),
        rows=[RowPair(title, first.right[first.first[:-1]], first.got[first.first[:-1]])],
        spread=_spread(failing, first),
        wrong=_wrong_rows(first),
        faults=named_faults(best),
        alternatives=named_alternatives(Diagnosis(best, others)),
        strength=None,
        probes=[*base.probes, *probe_results(observations)],
    )  # fmt: skip


def _by_watching(failing: GradientObservation) -> Explanation:
    """What is told from outside where no fault gives the numbers: which gradients are wrong, and by what."""
    if failing.got.missing >= failing.compared.keys():
        note = "nothing comes back at all: the output does not require grad"
        return Explanation((Variant(GRADIENT_FAULTS["gradient-detached"], {}, note),), 0.0)
    notes = [_in_words(comparison, failing) for comparison in failing.compared.values()]
    return Explanation((Variant(GRADIENT_FAULTS["gradient-only"], {}, "; ".join(notes)),), 0.0)


def _in_words(comparison: GradientComparison, failing: GradientObservation) -> str:
    name = tensor_of(comparison.name)
    if comparison.agrees:
        return f"{name} is right"
    if comparison.name in failing.got.missing:
        return f"{name} is missing"
    if not np.isfinite(comparison.got).all():
        return f"{name} is not a number in places"
    factor = comparison.factor
    return f"{name} is wrong" if factor is None else f"{name} is {factor:.4g} times what it should be"


def as_place(index: tuple[int, ...]) -> tuple[int, int | None, int, int]:
    """Batch, head, row and channel of an entry: of heads, of tokens, of a matrix, or of a vector."""
    match index:
        case (batch, head, token, channel):
            return batch, head, token, channel
        case (batch, token, channel):
            return batch, None, token, channel
        case (row, column):
            return 0, None, row, column
    return 0, None, 0, index[-1]


def _row_in_words(comparison: GradientComparison) -> str:
    batch, head, row, _ = as_place(comparison.first)
    if comparison.right.ndim < 3:
        return "all of it" if comparison.right.ndim == 1 else f"row {row}"
    return f"token {row} of sequence {batch}" + ("" if head is None else f" in head {head}")


def _by_rows(comparison: GradientComparison) -> Bools:
    """Which rows are wrong, ``(batch, row, head)``."""
    wrong = comparison.wrong
    if wrong.ndim == 3:
        return np.swapaxes(wrong, 1, 2)
    return wrong[..., None] if wrong.ndim == 2 else wrong.reshape(1, -1, 1)


def _spread(failing: GradientObservation, first: GradientComparison) -> str:
    wrong = [tensor_of(one.name) for one in failing.compared.values() if not one.agrees]
    right = [tensor_of(one.name) for one in failing.compared.values() if one.agrees]
    rows = _by_rows(first)
    told = f"{', '.join(wrong)} wrong" + (f", {', '.join(right)} right" if right else "")
    return f"{told}; in {tensor_of(first.name)}, {describe_spread(rows, np.ones_like(rows))}"


def _wrong_rows(first: GradientComparison) -> list[list[bool]]:
    if first.right.ndim < 3:
        return []
    return [[bool(row) for row in head] for head in _by_rows(first)[first.first[0]].T]


def probe_results(observations: Sequence[GradientObservation]) -> list[ProbeResult]:
    """One line for each gradient of each probe."""
    return [
        ProbeResult(
            f"gradient {tensor_of(one.name)} {observation.probe.name}",
            observation.probe.probe.exposes,
            one.agrees,
            float(one.difference.max(initial=0.0)),
            float(np.max(one.tolerance, initial=0.0)),
            "nothing came back" if one.name in observation.got.missing else "",
        )
        for observation in observations
        for one in observation.compared.values()
    ]
