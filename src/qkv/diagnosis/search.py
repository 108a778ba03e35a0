"""Search: the faults that reproduce every probe.

Every catalogue entry, then every estimated constant, then pairs of entries are tried on one failing probe; what
reproduces it must reproduce all the others too, the ones that passed included. So a diagnosis can't be a story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from qkv.diagnosis.estimation import families
from qkv.diagnosis.explanation import Diagnosis, Explanation
from qkv.diagnosis.observation import Observation
from qkv.diagnosis.pairs import pairs_of
from qkv.diagnosis.rounding import by_coarse_rounding, by_rounding
from qkv.diagnosis.twins import twin
from qkv.faults import CATALOGUE, Variant
from qkv.faults.scopes import scoped

NOT_A_NUMBER = "what it gives is not a number anywhere, so nothing can be told from its numbers"

QUICK_COST = 5000
"""Weights in a probe that is quick enough to try the whole catalogue on."""


def diagnose(observations: Sequence[Observation], *, pairs: bool = True) -> Diagnosis:
    """The faults that reproduce every observation, the likeliest first.

    Args:
        observations: what the candidate gave on each probe.
        pairs: whether two faults at once are looked for, and low precision, where one alone is not found.
    """
    failing = [observation for observation in observations if not observation.comparison.agrees]
    if not failing:
        return Diagnosis()
    if not any(np.isfinite(o.comparison.got[o.expected.judged]).any() for o in observations):
        return Diagnosis(untold=NOT_A_NUMBER)
    screen = next((o for o in failing if o.cost <= QUICK_COST), min(failing, key=lambda o: o.cost))
    screen = screen.one_call
    others = sorted((o for o in observations if o is not screen), key=lambda o: (o.comparison.agrees, o.cost))
    with np.errstate(all="ignore"):
        found = _of_one_fault(screen, others)
        rounded = None if found else by_rounding(observations)
        if rounded is not None:
            return Diagnosis(rounded)
        if not found and pairs:
            found = _verified(pairs_of(screen, _at_once(others)), screen, others)
        if found:
            return _ranked(found)
        return Diagnosis(by_coarse_rounding(observations) if pairs else None)


def _of_one_fault(screen: Observation, others: Sequence[Observation]) -> list[Explanation]:
    """The explanations by one fault: as the catalogue has it, in some calls only, or with another number."""
    cached = any(observation.probe.inputs.steps for observation in (screen, *others))
    found: list[Explanation] = []
    for search in (_singles(screen), _scoped(screen, cached), families(screen, _telling(screen, others), cached)):
        found += _verified(search, screen, others)
        if found and not (cached and all(explanation.general for explanation in found)):
            break
    return found


def _singles(screen: Observation) -> Iterator[tuple[Variant, ...]]:
    run = screen.expected.run
    for fault in CATALOGUE.values():
        for variant in fault.variants(run.spec):
            if twin(run, variant.replacements) is not None and screen.reproduced_under((variant,)) is not None:
                yield (variant,)


def _scoped(screen: Observation, cached: bool) -> Iterator[tuple[Variant, ...]]:
    """Single faults that some of several calls have, and the others not."""
    run = screen.expected.run
    for fault in CATALOGUE.values() if cached else ():
        for variant in () if fault.rounds else fault.variants(run.spec):
            if not run.inputs.steps and screen.reproduced_under((variant,)) is None:
                continue  # in one call, a fault that some calls have is the fault
            for narrow in scoped(variant):
                if twin(run, narrow.replacements) is not None and screen.reproduced_under((narrow,)) is not None:
                    yield (narrow,)


def _verified(
    search: Iterable[tuple[Variant, ...]], screen: Observation, others: Sequence[Observation]
) -> list[Explanation]:
    """The explanations that reproduce every probe; where a fault can't be made, the candidate must be right."""
    found = []
    for variants in search:
        errors = []
        for observation in (screen, *others):
            error = observation.reproduced_under(variants)
            if error is None:
                break
            errors.append(error)
        else:
            could_show = any(_can_show(variants, observation) for observation in (screen, *others))
            found.append(Explanation(variants, max(errors), could_show))
    return found


def _can_show(variants: Sequence[Variant], observation: Observation) -> bool:
    run = observation.expected.run
    return not any(variant.fault.absent(run.spec, run.inputs) for variant in variants)


def _ranked(found: list[Explanation]) -> Diagnosis:
    closest = min(explanation.error for explanation in found)
    near = [explanation for explanation in found if explanation.error <= max(1e3 * closest, 1e-6)]
    near.sort(key=lambda explanation: explanation.rank)  # of one rank those tried first: their errors are rounding
    one_each: dict[frozenset[str], Explanation] = {}
    for explanation in near:
        one_each.setdefault(frozenset(explanation.ids), explanation)
    best, *others = one_each.values()
    return Diagnosis(best, tuple(others))


def _telling(screen: Observation, others: Sequence[Observation]) -> Observation:
    """The probe that numbers are named by: one with heads of another width, since at one width 1/8 is many things."""
    width = _width(screen)
    return next((other for other in others if _width(other) != width), screen)


def _width(observation: Observation) -> int:
    query = observation.expected.run.inputs.query
    return 0 if query is None else int(query.shape[-1])


def _at_once(others: Sequence[Observation]) -> Observation | None:
    """A call without a cache that is right where the failing ones have caches: no fault that shows there is there."""
    return next((o for o in others if o.comparison.agrees and not o.probe.inputs.steps), None)
