"""Undeclared: an option of the design that a candidate has and nothing speaks of.

A window, a prefix or a softcap that nobody declared is no fault: it may be meant. It is one only against something that
was said. So where nothing was, the candidate is held to its own spec with one option more, as a flag would say it.
The scale is none of these: it has its number by definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from qkv.diagnosis import Explanation, Observation, Undeclared, estimate, twin
from qkv.errors import CandidateError
from qkv.faults import Family
from qkv.faults.as_if import as_if
from qkv.inference import window_named
from qkv.masks import Causal, Dilated, Everything, Mask, Prefix, SlidingWindow, window_of
from qkv.oracle import Replacements, Run
from qkv.oracle.stages import STAGES
from qkv.positions import Alibi
from qkv.settling import Trial
from qkv.vocabulary import Stage

LIKE_OPTIONS = frozenset({"window-layers-swapped", "bias-extra"})
"""Faults that are an option of the design where nothing was said against it."""

WIDEST, LONGEST_PREFIX, LARGEST_STEP = 256, 16, 4
"""The options that are looked for."""


@dataclass(frozen=True)
class Option:
    """One option more than the spec has.

    Attributes:
        words: what the candidate then has: ``a window of 4 keys``.
        flag: what declares it.
        stage: the stage that it is an option of.
        changes: the fields of the spec.
    """

    words: str
    flag: str
    stage: Stage
    changes: Mapping[str, Any]


def undeclared_option(trial: Trial, explanation: Explanation | None) -> Undeclared | None:
    """The one option beyond its spec under which a candidate is right; None where none is, or a fault explains it.

    Args:
        trial: a reading that is wrong, all of whose probes have run.
        explanation: the fault that gives its numbers.
    """
    said = trial.intention
    if explanation is not None and not _may_be_meant(explanation):
        return None
    failing = [observation for observation in trial.observations if not observation.comparison.agrees]
    screen = min(failing, key=lambda observation: observation.cost).one_call
    run = screen.expected.run
    for option in _options(screen):
        # Whoever said what is meant has spoken of every option but of the mask's: flags name one after the other.
        if said.stated & option.changes.keys() or (said.is_meant and "mask" not in option.changes):
            continue
        way = twin(run, {option.stage: as_if(STAGES[option.stage], **option.changes)})
        if way is not None and screen.reproduced_by(way.output) is not None and _right_with(trial, option):
            return Undeclared(option.words, option.flag, _half_said(trial, option))
    return None


def _may_be_meant(explanation: Explanation) -> bool:
    """Whether what was found is, or may only look like, an option that nobody declared."""
    if len(explanation.variants) > 1:  # one option is likelier than two faults
        return True
    (variant,) = explanation.variants
    fault = variant.fault
    return fault.id in LIKE_OPTIONS or fault.general or fault.rounds


def _half_said(trial: Trial, option: Option) -> str:
    name = window_named(trial.reading.facts)
    return f"the name {name} speaks of a window, and nothing says how wide" if name and "window" in option.words else ""


def _right_with(trial: Trial, option: Option) -> bool:
    held = trial.under(trial.reading.spec.but(**option.changes))
    try:
        held.run(quick=False)
    except CandidateError:
        return False
    return held.right and len(held.observations) >= len(trial.observations)


def _options(screen: Observation) -> Iterator[Option]:
    run = screen.expected.run
    yield from _masks(run)
    yield from _softcaps(screen)
    if run.spec.alibi is None:
        for alibi in (Alibi(), Alibi(signed=True)):
            yield Option("alibi", "--alibi", Stage.BIAS, {"alibi": alibi})


def _masks(run: Run) -> Iterator[Option]:
    mask, keys = run.spec.mask, run.inputs.lengths[1]
    if mask not in (Everything(), Causal()):
        return
    for size in range(1, min(keys, WIDEST)):
        window: Mask = SlidingWindow(size) if mask == Everything() else mask & SlidingWindow(size)
        yield Option(f"a window of {size} keys", f"--window {size}", Stage.MASK, {"mask": window})
    for sides in permutations(range(min(keys, LONGEST_PREFIX)), 2) if mask == Everything() else ():
        window = window_of(sides)
        words = f"a window of {sides[0]} keys before a query's own and {sides[1]} after it"
        yield Option(words, f'--mask "{window}"', Stage.MASK, {"mask": window})
    if mask == Causal():
        for length in range(1, min(keys, LONGEST_PREFIX)):
            words = f"a prefix of {length} tokens that all see"
            yield Option(words, f"--causal --prefix {length}", Stage.MASK, {"mask": mask | Prefix(length)})
    for step in range(2, min(keys, LARGEST_STEP + 1)):
        comb = Dilated(step) if mask == Everything() else mask & Dilated(step)
        yield Option(f"a mask that shows one key in {step}", f'--mask "{comb}"', Stage.MASK, {"mask": comb})


STARTS = (50.0, 10.0, 30.0, 3.0, 1.0, 100.0, 0.3)
"""Softcaps to start an estimation from."""


def _softcaps(screen: Observation) -> Iterator[Option]:
    if screen.expected.run.spec.softcap is not None:
        return
    with np.errstate(all="ignore"):
        found = estimate(Family(_capped, STARTS, lambda *_: ""), screen)
    if found is not None and found > 0:
        number = float(f"{found:.6g}")
        yield Option(f"a softcap of {number:g}", f"--softcap {number:g}", Stage.SOFTCAP, {"softcap": number})


def _capped(number: float) -> Replacements:
    return {Stage.SOFTCAP: as_if(STAGES[Stage.SOFTCAP], softcap=number)}
