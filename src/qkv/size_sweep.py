"""Size sweep: a function of query, key and value that is right at ordinary sizes, tried at many others.

Where it is wrong at one, further calls find the smallest such size and the rule behind it. A rule is said only if it
was foretold right on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.comparison import expectation
from qkv.diagnosis import Observation
from qkv.errors import CandidateError
from qkv.probes.sizes import Axes, Size, axes_for, size_probe
from qkv.settling import Trial
from qkv.size_rules import SizeRule, bounding, columns, finer, fitting, shows, telling

SECONDS, THOROUGH = 1.5, 30.0
"""How long a sweep may take, and one that was asked for."""

DRAWS = 3
"""Draws of numbers at a size before it counts as right: some faults depend on which score is the largest."""

One = TypeVar("One")

FORETOLD = 3
"""Sizes on either side of a rule, near the smallest that is wrong, that it must foretell before it is said."""

FRESH = 6
"""Further sizes on either side that nothing of what was seen has led to, for the same."""

DRAWN, MOST_WORK = 300, 10_000_000
"""How many such sizes are drawn, and the work of the largest."""

UNUSUAL = 0.3
"""Share of them that lie in memory in any way."""

MOST_CALLS = 100
"""Sizes that are tried for the rule's sake at most."""

QUICK = 20_000
"""Weights of an observation that is kept for the diagnosis."""

MOST_WRONG, MOST_RIGHT = 4, 8
"""Observations that the diagnosis is given."""


@dataclass
class SizeSweep:
    """What came of trying many sizes.

    Attributes:
        trial: the reading, and what it is meant to compute.
        axes: the values of each size.
        evidence: every size that ran, and whether it was wrong there.
        observations: those worth a diagnosis: wrong ones, and right ones near them.
        refused: every size that it would not take, and what it said.
        ended: the size at which its process came to an end, and how.
        rule: the rule for where it is wrong; None where none was found or nothing is wrong.
    """

    trial: Trial
    axes: Axes
    evidence: dict[Size, bool] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    refused: dict[Size, CandidateError] = field(default_factory=dict)
    ended: tuple[Size, CandidateError] | None = None
    rule: SizeRule | None = None

    @property
    def only_when(self) -> str | None:
        """The rule in words."""
        return None if self.rule is None else self.rule.words

    @property
    def wrong(self) -> list[Size]:
        """The sizes at which it is wrong, those with the least work first."""
        return sorted((size for size, wrong in self.evidence.items() if wrong), key=lambda size: size.work)

    @property
    def most_telling(self) -> list[Observation]:
        """A few of the observations for the diagnosis: the least that is wrong and larger ones, then right ones."""
        wrong = sorted((o for o in self.observations if not o.comparison.agrees), key=lambda o: (o.cost, o.output.size))
        return (
            wrong[:: len(wrong) // MOST_WRONG + 1] + [o for o in self.observations if o.comparison.agrees][-MOST_RIGHT:]
        )

    def is_wrong(self, size: Size, draws: int = DRAWS) -> bool:
        """Whether it is wrong at a size, in any of some draws of numbers; not where it refuses the size.

        Raises:
            CandidateError: its process came to an end there.
        """
        wrong = False
        for draw in range(0 if size in self.refused else draws):
            try:
                observation = _observed(self.trial, size, draw)
            except NotApplicable:
                return False
            except CandidateError as error:
                self.refused[size] = error
                if error.fatal:
                    self.ended = size, error
                    raise
                return False
            wrong = not observation.comparison.agrees
            if wrong or (draws > 1 and observation.cost <= QUICK):
                self.observations.append(observation)
            if wrong:
                break
        if size not in self.refused:
            self.evidence[size] = wrong or self.evidence.get(size, False)
        return wrong


def swept(trial: Trial, *, more: bool = False) -> SizeSweep:
    """What a function of query, key and value, right so far, gives at many sizes. Nothing is tried on anything else."""
    refused = frozenset(probe.kind for probe, _ in trial.refused)
    sweep = SizeSweep(trial, axes_for(trial.setting, trial.intention.stated, refused, more=more))
    seconds = THOROUGH if more else SECONDS
    if trial.reading.abilities.free_sizes:
        try:
            _covered(sweep, seconds)
            if sweep.wrong:
                sweep.rule = _rule(sweep, _shrunk(sweep), time.perf_counter() + 2 * seconds)
        except CandidateError as error:
            if not error.fatal:
                raise
    return sweep


def _observed(trial: Trial, size: Size, draw: int) -> Observation:
    """One size, run and compared. The bar is drawn from roundings only where the least one is broken."""
    sized = trial.resized(size.num_heads, size.num_kv_heads, size.head_dim, size.value_dim)
    observation = sized.observe(size_probe(trial.setting, size, draw), draws=0)
    if observation.comparison.agrees:
        return observation
    whole = expectation(observation.expected.run, sized.dtype, judge_empty_rows=trial.judge_empty_rows)
    return replace(observation, expected=whole)


def _covered(sweep: SizeSweep, seconds: float) -> None:
    """Runs the designed sizes, those for which there is time left: as much as the last one took, in proportion."""
    sizes = sweep.axes.covered()
    until = time.perf_counter() + seconds
    taken, work = 0.0, 1
    for size in sizes:
        started = time.perf_counter()
        if started + taken * size.work / work > until:
            continue
        sweep.is_wrong(size, draws=1)
        taken, work = time.perf_counter() - started, size.work


def _shrunk(sweep: SizeSweep) -> Size:
    """A size at which it is wrong still when any one of its numbers is made smaller."""
    size = sweep.wrong[0]
    for step in _STEPS:
        size = next((smaller for smaller in step(size, sweep) if sweep.is_wrong(smaller)), size)
    return size


def _plainer(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    if size.memory != "contiguous":
        yield replace(size, memory="contiguous")


def _one_sequence(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    fewest = 2 if size.memory == "expanded" else 1
    if size.batch > fewest:
        yield replace(size, batch=fewest)


def _fewer_heads(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    for num_heads, num_kv_heads in sweep.axes.heads:
        if num_heads < size.num_heads:
            yield replace(size, num_heads=num_heads, num_kv_heads=num_kv_heads)


def _fewer_channels(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    for dim in sorted({8, *sweep.axes.head_dims}) if len(sweep.axes.head_dims) > 1 else ():
        if dim < size.head_dim:
            yield replace(size, head_dim=dim, value_dim=dim if size.value_dim == size.head_dim else dim + 4)


def _same_channels(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    if size.value_dim != size.head_dim:
        yield replace(size, value_dim=size.head_dim)


def _no_more_queries(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    if size.query_len > size.key_len:
        yield replace(size, query_len=size.key_len)


def _fewer_tokens(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    for length in sorted({3, 5, 8, *sweep.axes.key_lens}):
        if length < size.key_len:
            if size.query_len == size.key_len:
                yield replace(size, query_len=length, key_len=length)
            elif size.query_len < length:
                yield replace(size, key_len=length)


_STEPS = (_plainer, _one_sequence, _fewer_heads, _same_channels, _fewer_channels, _no_more_queries, _fewer_tokens)


def _rule(sweep: SizeSweep, size: Size, until: float) -> SizeRule | None:
    """The rule that fits all that was seen, once no other one does and it has foretold what further sizes give."""
    pools = [sorted(set(pool), key=_most_work) for pool in (_around(size, sweep), _anywhere(sweep))]
    rules, narrowed = fitting(sweep.evidence), False
    for _ in range(MOST_CALLS):
        untried = [other for other in pools[0] if other not in sweep.evidence and other not in sweep.refused]
        further = telling(rules, untried)
        if further is None and rules and not narrowed:
            rules, narrowed = [rules[0], *finer(rules[0], sweep.evidence)], True
            further = telling(rules, untried)
        if not rules:
            return _bound(sweep, pools, until)
        further = further or _to_foretell(rules[0], pools, sweep)
        if further is None:
            return rules[0]
        if time.perf_counter() > until:
            return None
        wrong = sweep.is_wrong(further)
        if further in sweep.evidence and (wrong or shows(further)):
            at = columns([further])
            left = [rule for rule in rules if bool(rule.holds(at)[0]) == wrong]
            rules, narrowed = (left, narrowed) if left else (fitting(sweep.evidence), False)
    return _bound(sweep, pools, until)


def _bound(sweep: SizeSweep, pools: Sequence[Sequence[Size]], until: float) -> SizeRule | None:
    """The rule outside which nothing is wrong, at further sizes either, and inside which most is."""
    while (rule := bounding(sweep.evidence)) is not None:
        further = _to_foretell(rule, pools, sweep)
        if further is None:
            return rule
        if time.perf_counter() > until:
            return None
        sweep.is_wrong(further)
    return None


def _to_foretell(rule: SizeRule, pools: Sequence[Sequence[Size]], sweep: SizeSweep) -> Size | None:
    """A size on the side of the rule where too few of a pool were tried; None once it was foretold right enough.

    Outside the rule it is among the largest: these have the most rows that may be wrong.
    """
    for pool, enough in zip(pools, (FORETOLD, FRESH), strict=True):
        for outside, side in enumerate(rule.sides(columns(pool))):
            sizes = [size for size, there in zip(pool, side, strict=True) if there][-2 * enough if outside else 0 :]
            open_ones = [size for size in sizes if size not in sweep.evidence and size not in sweep.refused]
            if open_ones and sum(size in sweep.evidence for size in sizes) < enough:
                return open_ones[-1 if outside else len(open_ones) // 2]
    return None


def _most_work(size: Size) -> tuple[int, str]:
    return size.work, str(size)


def _anywhere(sweep: SizeSweep) -> Iterator[Size]:
    """Sizes drawn from all that it may be given, in which any numbers may meet."""
    axes, rng = sweep.axes, np.random.default_rng(sweep.trial.seed)

    def one_of(values: Sequence[One]) -> One:
        return values[int(rng.integers(len(values)))]

    for _ in range(DRAWN):
        key_len = int(np.exp(rng.uniform(0, np.log(max(axes.key_lens) + 1))))
        fewer, more = 1 + int(rng.integers(key_len)), key_len + 1 + int(rng.integers(9))
        query_len = {"as many": key_len, "one": 1, "fewer": fewer, "more": more}[one_of(axes.queries)]
        memory = one_of(axes.memories) if rng.random() < UNUSUAL else axes.memories[0]
        batch = 3 if memory == "expanded" else one_of(axes.batches)
        (heads, kv_heads), dim = one_of(axes.heads), one_of(axes.head_dims)
        value_dim = dim + 4 if one_of(axes.values) == "other" else dim
        size = Size(batch, heads, kv_heads, query_len, key_len, dim, value_dim, memory)
        if size.work <= MOST_WORK:
            yield size


def _around(size: Size, sweep: SizeSweep) -> Iterator[Size]:
    """Sizes that differ from this one in one number, or in two that go together."""
    axes, rope = sweep.axes, sweep.trial.reading.spec.rope is not None
    yield size
    for length in range(1, 2 * max(axes.key_lens) + 1):
        yield replace(size, query_len=length, key_len=length)
        if ("fewer" in axes.queries and length > size.query_len) or "more" in axes.queries:
            yield replace(size, key_len=length)
        if ("fewer" in axes.queries and length < size.key_len) or "more" in axes.queries:
            yield replace(size, query_len=length)
    if len(axes.head_dims) > 1:
        for dim in range(2, max(axes.head_dims) + 2, 2 if rope else 1):
            yield replace(size, head_dim=dim, value_dim=dim)
            if "other" in axes.values:
                yield replace(size, head_dim=dim)
                yield replace(size, value_dim=dim)
    yield from (
        replace(size, batch=batch) for batch in range(2 if size.memory == "expanded" else 1, max(axes.batches) + 1)
    )
    yield from (replace(size, num_heads=heads, num_kv_heads=kv_heads) for heads, kv_heads in axes.heads)
    yield from (
        replace(size, memory=memory, batch=3 if memory == "expanded" else size.batch) for memory in axes.memories
    )
