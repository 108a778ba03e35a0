"""Pairs: two faults at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from qkv.comparison import Floats
from qkv.diagnosis.observation import Observation
from qkv.diagnosis.twins import IMPOSSIBLE, twin
from qkv.faults import CATALOGUE, Variant
from qkv.faults.one_stage import one_stage_pairs
from qkv.oracle import Run, resume


def pairs_of(screen: Observation, right: Observation | None) -> Iterator[tuple[Variant, ...]]:
    """Pairs of faults that give the screen's numbers; one of them may be invisible there and show on other probes.

    Args:
        screen: the failing probe that all are tried on.
        right: one that passes; where the screen is of calls with a cache, faults that show on it are left out.
    """
    run = screen.expected.run
    hidden = right if screen.probe.inputs.steps else None
    seen: dict[bytes, list[tuple[Variant, Run]]] = {}
    unseen: list[Variant] = []
    for fault in CATALOGUE.values():
        for variant in () if fault.rounds else fault.variants(run.spec):
            if hidden is not None and hidden.reproduced_under((variant,)) is None:
                continue
            given = twin(run, variant.replacements)
            if given is None or screen.expected.agrees(given.output) is not None:
                unseen.append(variant)
            else:
                # Ways that give the same numbers here are tried once, and all of them told apart by the other probes.
                alike = np.round(given.output, 9).tobytes() + bytes(stage.order for stage in variant.replacements)
                seen.setdefault(alike, []).append((variant, given))
    groups = sorted(seen.values(), key=lambda group: min(group[0][0].replacements))
    for place, group in enumerate(groups):
        first, given = group[0]
        if screen.reproduced_by(given.output) is not None:
            yield from ((one, other) for (one, _), other in product(group, unseen) if _apart(one, other))
        for others in groups[place + 1 :]:
            second = others[0][0]
            if _disjoint(first, second) and screen.reproduced_by(_both(given, run, first, second)) is not None:
                yield from ((one, other) for (one, _), (other, _) in product(group, others) if _apart(one, other))
    for first, both in one_stage_pairs(run.spec):
        together = twin(run, both.replacements)
        if together is not None and screen.reproduced_by(together.output) is not None:
            yield first, both


def _disjoint(first: Variant, second: Variant) -> bool:
    return not first.replacements.keys() & second.replacements.keys()


def _apart(first: Variant, second: Variant) -> bool:
    """Whether two variants are of two faults that replace different stages."""
    return first.fault is not second.fault and _disjoint(first, second)


def _both(given: Run, run: Run, first: Variant, second: Variant) -> Floats:
    """The output under both variants, from the run under the first one; NaN where it is impossible."""
    if run.parts:
        pairs = zip(given.parts, run.parts, strict=True)
        outputs = [_both(part, right, first, second) for part, right in pairs]
        alike = len({(output.shape[0], output.shape[2:]) for output in outputs}) == 1
        return np.concatenate(outputs, axis=1) if alike else np.full_like(run.output, np.nan)
    start = min(second.replacements)
    before = given.before.get(start) or run.before[start]
    try:
        return resume(before, {**first.replacements, **second.replacements}, start.order).output
    except IMPOSSIBLE:
        return np.full_like(run.output, np.nan)
