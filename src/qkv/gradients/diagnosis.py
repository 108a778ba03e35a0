"""Diagnosis of gradients: which faults of the backward pass give the candidate's own gradients back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from qkv.diagnosis import IMPOSSIBLE, Diagnosis, Explanation
from qkv.faults import GRADIENT_FAULTS, Variant
from qkv.gradients.comparison import GradientObservation
from qkv.oracle import BackwardReplacements


def diagnose_gradients(observations: Sequence[GradientObservation]) -> Diagnosis:
    """The faults that reproduce every gradient of every probe, the likeliest first; those of the output come before."""
    failing = [observation for observation in observations if not observation.agrees]
    if not failing:
        return Diagnosis()
    screen = min(failing, key=_cost)
    others = sorted((one for one in observations if one is not screen), key=lambda one: (one.agrees, _cost(one)))
    with np.errstate(all="ignore"):
        reproduced = list(_reproduced(screen))
        whole = [(variant,) for variant, errors in reproduced if len(errors) == len(screen.compared)]
        found = _verified(whole, screen, others) or _verified(_pairs(reproduced, screen), screen, others)
    found.sort(key=_rank)
    named = {explanation.ids: explanation for explanation in reversed(found)}
    best = next(iter(found), None)
    return Diagnosis(best, tuple(one for ids, one in reversed(named.items()) if best and ids != best.ids))


def _cost(observation: GradientObservation) -> int:
    return int(np.prod(observation.expected.run.weights.shape))


def _reproduced(screen: GradientObservation) -> Iterator[tuple[Variant, Mapping[str, float]]]:
    """Every way of every fault with the gradients that it gives back on one probe."""
    run = screen.expected.run
    for fault in GRADIENT_FAULTS.values():
        for variant in () if fault.absent(run.spec, run.inputs) else fault.variants(run.spec):
            errors = _errors(screen, variant.backward)
            if errors:
                yield variant, errors


def _errors(observation: GradientObservation, replacements: BackwardReplacements) -> Mapping[str, float]:
    """The gradients that a fault gives back; none where it can't be made on these inputs."""
    try:
        return observation.reproduced(replacements)
    except IMPOSSIBLE:
        return {}


def _pairs(
    reproduced: Sequence[tuple[Variant, Mapping[str, float]]], screen: GradientObservation
) -> Iterator[tuple[Variant, ...]]:
    """Pairs that replace other stages, where one gives back the wrong gradients that the other doesn't."""
    wrong = {name for name, comparison in screen.compared.items() if not comparison.agrees}
    shared = wrong - {name for _, errors in reproduced for name in errors}
    useful = [(variant, wrong & errors.keys()) for variant, errors in reproduced if wrong & errors.keys()]
    for (one, first), (other, second) in product(useful, repeat=2):
        apart = one.fault.stage != other.fault.stage and not one.backward.keys() & other.backward.keys()
        if one.fault.id < other.fault.id and apart and first | second | shared == wrong and first != second:
            yield one, other


def _verified(
    search: Iterator[tuple[Variant, ...]] | Sequence[tuple[Variant, ...]],
    screen: GradientObservation,
    others: Sequence[GradientObservation],
) -> list[Explanation]:
    """The explanations that reproduce every probe; where a fault can't be made, the gradients must be right."""
    found = []
    for variants in search:
        worst = 0.0
        for observation in (screen, *others):
            error = _whole_error(observation, variants)
            if error is None:
                break
            worst = max(worst, error)
        else:
            found.append(Explanation(variants, worst))
    return found


def _whole_error(observation: GradientObservation, variants: Sequence[Variant]) -> float | None:
    run = observation.expected.run
    there = [variant for variant in variants if not variant.fault.absent(run.spec, run.inputs)]
    together = {stage: new for variant in there for stage, new in variant.backward.items()}
    try:
        errors = observation.reproduced(together)
    except IMPOSSIBLE:
        errors = observation.reproduced({})
    return max(errors.values(), default=0.0) if len(errors) == len(observation.compared) else None


def _rank(explanation: Explanation) -> tuple[int, int, int, float]:
    order = list(GRADIENT_FAULTS)
    return (
        len(explanation.variants),
        -min(variant.fault.commonness for variant in explanation.variants),
        sum(order.index(variant.fault.id) for variant in explanation.variants),
        explanation.error,
    )
