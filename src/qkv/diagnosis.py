"""Diagnosis: which faults give the candidate's own numbers back.

Every catalogue entry, then every estimated constant, then pairs of entries are tried on one failing probe; what
reproduces it must reproduce all the others too, the ones that passed included. So a diagnosis can't be a story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, product
from typing import get_args

import numpy as np

from qkv.comparison import EPSILON, Comparison, Expectation, Floats, as_rows, tolerance_of
from qkv.errors import ShapeError
from qkv.faults import CATALOGUE, Family, Variant
from qkv.faults.one_stage import one_stage_pairs
from qkv.faults.scopes import scoped
from qkv.oracle import Replacements, Run, resume, run_stages
from qkv.oracle.chunks import joined
from qkv.probes import Probe
from qkv.vocabulary import EmptyRow, Stage


@dataclass(frozen=True)
class Observation:
    """One probe, what was expected of it, and what the candidate gave.

    Attributes:
        probe: the inputs.
        expected: the oracle's answer and its tolerance.
        output: the candidate's, ``(batch, query, width)``.
    """

    probe: Probe
    expected: Expectation
    output: Floats

    @cached_property
    def comparison(self) -> Comparison:
        """The two beside each other."""
        return self.expected.compare(self.output)

    @property
    def cost(self) -> int:
        """How much work the oracle has with it."""
        return int(np.prod(self.expected.run.weights.shape))

    @property
    def one_call(self) -> Observation:
        """The last of several calls that is wrong, alone: a fault is looked for in it first."""
        expected, end = self.expected, self.expected.run.output.shape[1]
        for part in reversed(expected.run.parts):
            of = slice(end - part.output.shape[1], end)
            cut = replace(expected, run=part, tolerance=expected.tolerance[:, of], judged=expected.judged[:, of])
            alone = Observation(replace(self.probe, inputs=part.inputs), cut, self.output[:, of])
            if not alone.comparison.agrees:
                return alone
            end = of.start
        return self

    def reproduced_under(self, variants: Sequence[Variant]) -> float | None:
        """The largest error of the oracle under these faults against the candidate, in units of what rounding allows.

        A fault changes the numbers that are rounded, and so the bar: larger scores, other rows. What mixes rows brings
        those of queries that see nothing into others: where these aren't judged, they may be by any rule.
        """
        mixes = all(stage > Stage.MIX for variant in variants for stage in variant.replacements)
        runs = (self.expected.run, *(self._by_other_rules if mixes else ()))
        errors = (self._reproduced_from(run, variants) for run in runs)
        return next((error for error in errors if error is not None), None)

    @cached_property
    def _by_other_rules(self) -> list[Run]:
        """The run with what else queries may get that see nothing, where there are any and they aren't judged."""
        run = self.expected.run
        whole = type(run) is Run and not run.parts and run.may_attend is not None  # in one call, not in blocks
        if not whole or self.expected.judged.all() or run.may_attend.any(axis=-1).all():
            return []
        others = [rule for rule in get_args(EmptyRow) if rule != run.spec.empty_row]
        return [run_stages(replace(run.spec, empty_row=rule), run.inputs) for rule in others]

    def _reproduced_from(self, run: Run, variants: Sequence[Variant]) -> float | None:
        given = under(variants, run)
        error = self.reproduced_by(given.output)
        if error is not None or given is run or given.output.shape != self.output.shape:
            return error
        rows, judged = as_rows(given.output, self.expected.num_heads), self.expected.judged
        off = np.abs(rows - self.comparison.got).max(axis=-1)
        coarse = max(float(self.expected.tolerance.max()), EPSILON[self.expected.held_to] * float(np.abs(rows).max()))
        if not float(np.max(off, where=judged, initial=0.0)) <= COARSE * coarse:
            return None
        together = {stage: new for variant in variants for stage, new in variant.replacements.items()}
        try:
            allowed = tolerance_of(given, together, self.expected.held_to, self.expected.num_heads)
        except IMPOSSIBLE:  # one of two can't be made here, and the other was tried alone
            return None
        worst = float(np.max(off / np.maximum(allowed, self.expected.tolerance), where=judged, initial=0.0))
        return worst if worst <= 1.0 else None

    def reproduced_by(self, output: Floats) -> float | None:
        """The largest error of ``output`` against the candidate's, in units of the tolerance; None beyond it."""
        if output.shape != self.output.shape:
            return None
        return self._as_expectation.agrees(output)

    @cached_property
    def _as_expectation(self) -> Expectation:
        expected = self.expected
        return replace(expected, run=expected.run.but(output=self.output))


@dataclass(frozen=True)
class Explanation:
    """One fault, or a pair, that gives the candidate's numbers.

    Attributes:
        variants: the faults, each in the way it is made.
        error: largest error of the reproduction over all probes, in units of the tolerance.
        could_show: whether what the faults need to show is there in any probe: several sequences, a mask.
    """

    variants: tuple[Variant, ...]
    error: float
    could_show: bool = True

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the faults."""
        return tuple(variant.fault.id for variant in self.variants)

    @property
    def general(self) -> bool:
        """Whether a more particular fault goes before it."""
        return any(variant.fault.general for variant in self.variants)

    @property
    def rank(self) -> tuple[int, bool, bool, int, int]:
        """Order among explanations that reproduce equally well: few faults, particular ones, common ones first."""
        order = list(CATALOGUE)
        return (
            len(self.variants),
            not self.could_show,
            self.general,
            -min(variant.fault.commonness for variant in self.variants),
            sum(order.index(variant.fault.id) for variant in self.variants),
        )


@dataclass(frozen=True)
class Undeclared:
    """An option of the design that the candidate has, and that nothing declares.

    Attributes:
        words: the option: ``a window of 4 keys``.
        flag: what declares it: ``--window 4``.
        half_said: what speaks of it without saying all, as a clause; nothing by default.
    """

    words: str
    flag: str
    half_said: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        best: the explanation to report; None where nothing reproduces the candidate.
        alternatives: others that reproduce it just as well.
        not_a_number: whether the candidate gives no finite number in any row that counts, so that nothing can be told.
        undeclared: the option under which all is right, where one is there that nothing declares.
    """

    best: Explanation | None = None
    alternatives: tuple[Explanation, ...] = field(default=())
    not_a_number: bool = False
    undeclared: Undeclared | None = None


IMPOSSIBLE = (ShapeError, ValueError, IndexError, ArithmeticError)
"""What a replacement raises that can't be made on these inputs, or two that don't go together."""

COARSE = 1e4
"""Errors beyond so many times what rounding allows a right candidate aren't rounding under a fault either."""

QUICK_COST = 4000
"""Weights in a probe that is quick enough to try the whole catalogue on."""


def diagnose(observations: Sequence[Observation], *, pairs: bool = True) -> Diagnosis:
    """The faults that reproduce every observation, the likeliest first."""
    failing = [observation for observation in observations if not observation.comparison.agrees]
    if not failing:
        return Diagnosis()
    if not any(np.isfinite(o.comparison.got[o.expected.judged]).any() for o in observations):
        return Diagnosis(not_a_number=True)
    screen = next((o for o in failing if o.cost <= QUICK_COST), min(failing, key=lambda o: o.cost))
    screen = screen.one_call
    others = sorted((o for o in observations if o is not screen), key=lambda o: (o.comparison.agrees, o.cost))
    with np.errstate(all="ignore"):
        cached = any(observation.probe.inputs.steps for observation in observations)
        found: list[Explanation] = []
        for search in (_singles(screen), _scoped(screen, cached), _families(screen, _telling(screen, others), cached)):
            found += _verified(search, screen, others)
            if found and not (cached and all(explanation.general for explanation in found)):
                break
        if found:
            return _ranked(found)
        rounding = _rounding(observations)
        if rounding is not None:
            return Diagnosis(rounding)
        found = _verified(_pairs(screen, _at_once(others)), screen, others) if pairs else []
        if found:
            return _ranked(found)
        coarse = _coarse(observations) if pairs else None
        if coarse is not None:
            return Diagnosis(coarse)
    return Diagnosis()


def twin(run: Run, replacements: Replacements) -> Run | None:
    """The oracle's run with some stages replaced; None where the replacement is impossible on these inputs."""
    if run.parts:
        made = [twin(part, replacements) for part in run.parts]
        try:
            return joined(run, [new or part for new, part in zip(made, run.parts, strict=True)]) if any(made) else None
        except IMPOSSIBLE:
            return None
    first = min(replacements)
    if first not in run.before:  # rows of a long run, which begin behind the heads
        return None
    try:
        return resume(run.before[first], replacements, first.order)
    except IMPOSSIBLE:
        return None


def under(variants: Sequence[Variant], run: Run) -> Run:
    """The oracle's run under the faults. One that can't be made on these inputs changes nothing there."""
    together = {stage: new for variant in variants for stage, new in variant.replacements.items()}
    given = twin(run, together) if together else run
    if given is None:
        possible = [variant for variant in variants if twin(run, variant.replacements) is not None]
        given = under(possible, run) if 0 < len(possible) < len(variants) else run
    return given


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
    one_each = [next(group) for _, group in groupby(near, key=lambda explanation: explanation.ids)]
    return Diagnosis(one_each[0], tuple(one_each[1:]))


def _telling(screen: Observation, others: Sequence[Observation]) -> Observation:
    """The probe that numbers are named by: one with heads of another width, since at one width 1/8 is many things."""
    width = _width(screen)
    return next((other for other in others if _width(other) != width), screen)


def _width(observation: Observation) -> int:
    query = observation.expected.run.inputs.query
    return 0 if query is None else int(query.shape[-1])


def _families(screen: Observation, telling: Observation, cached: bool) -> Iterator[tuple[Variant, ...]]:
    run, elsewhere = screen.expected.run, telling.expected.run.inputs
    for fault in CATALOGUE.values():
        for family in () if fault.absent(run.spec, run.inputs) else fault.families:
            value = estimate(family, screen)
            if value is not None and abs(value) > SMALLEST and family.accepts(value):
                here, there = (family.note(run.spec, inputs, value) for inputs in (run.inputs, elsewhere))
                note = here if " = " not in here else there
                variant = Variant(fault, family.replacements(value), note, estimated=True)
                yield from ((one,) for one in (variant, *(scoped(variant) if cached else ())))
        if fault.further is not None and not fault.absent(run.spec, run.inputs):
            yield from ((Variant(fault, way, note),) for note, way in fault.further(run))


Residual = Callable[[float], Floats | None]


def estimate(family: Family, observation: Observation) -> float | None:
    """The number for which the family gives the candidate's output; None where none does.

    Gauss-Newton with a numerical derivative, from the start that comes nearest.
    """
    judged = observation.expected.judged[..., None]
    target = observation.comparison.got

    def residual(value: float) -> Floats | None:
        given = twin(observation.expected.run, family.replacements(value))
        if given is None:
            return None
        rows = given.output.reshape(target.shape)
        difference = np.where(judged, rows - target, 0.0)
        return difference if np.isfinite(difference).all() else None

    tried = [(float(np.sum(error**2)), start) for start in family.starts if (error := residual(start)) is not None]
    for _, value in sorted(tried)[:2]:
        value = _refined(residual, value)
        error = residual(value)
        if error is not None and (np.abs(error).max(axis=-1) <= observation.expected.tolerance).all():
            return value
    return None


def _refined(error_at: Residual, value: float) -> float:
    begin: float | None = None
    for turn in range(30):
        here = error_at(value)
        step = 1e-6 * max(abs(value), 1e-3)
        ahead = error_at(value + step)
        if here is None or ahead is None:
            return value
        off = float(np.sum(here**2))
        begin = off if begin is None else begin
        if turn == PATIENCE and off > 0.5 * begin:
            return value
        slope = (ahead - here) / step
        steepness = float(np.sum(slope**2))
        if steepness == 0.0:
            return value
        move = -float(np.sum(slope * here)) / steepness
        value, moved = _damped(error_at, value, move, off)
        if abs(moved) <= 1e-13 * max(abs(value), 1e-9):
            return value
    return value


def _damped(error_at: Residual, value: float, move: float, before: float) -> tuple[float, float]:
    for _ in range(8):
        error = error_at(value + move)
        if error is not None and float(np.sum(error**2)) <= before:
            return value + move, move
        move /= 4
    return value, 0.0


PATIENCE = 5
"""Steps after which an estimation that got nowhere near is given up."""

SMALLEST = 1e-9
"""Estimates nearer to zero than this say that the number isn't there at all, which is another fault."""

NEARLY = 0.5
"""A fault that only rounds explains a candidate if it leaves less than this share of its error, on every probe."""


def _rounding(observations: Sequence[Observation]) -> Explanation | None:
    """The fault of precision that comes nearest to the candidate; None where none explains most of its error."""
    run = observations[0].expected.run
    failing = sorted((o for o in observations if not o.comparison.agrees), key=lambda o: o.cost)
    best: tuple[float, Variant] | None = None
    for fault in CATALOGUE.values():
        for variant in fault.variants(run.spec) if fault.rounds else ():
            left = 0.0
            for observation in failing:
                left = max(left, _share_left(observation, variant))
                if left >= (NEARLY if best is None else best[0]):
                    break
            else:
                best = (left, variant)
    return None if best is None else Explanation((best[1],), best[0])


def _coarse(observations: Sequence[Observation]) -> Explanation | None:
    """Low precision somewhere inside, where all would be right if the candidate had been run in it."""
    for dtype in ("float16", "bfloat16"):
        if EPSILON[dtype] <= EPSILON[observations[0].expected.held_to]:
            continue
        errors = [_error_in(observation, dtype) for observation in observations]
        if max(errors) <= 1.0:
            fault = next(fault for fault in CATALOGUE.values() if fault.rounds and fault.stage is Stage.SOFTMAX)
            note = f"right to the rounding of {dtype}, somewhere inside, and not to that of float32"
            return Explanation((Variant(fault, {}, note),), max(errors))
    return None


def _error_in(observation: Observation, dtype: str) -> float:
    expected = observation.expected
    tolerance = tolerance_of(expected.run, {}, dtype, expected.num_heads)
    return replace(expected, tolerance=tolerance).compare(observation.output).worst


def _share_left(observation: Observation, variant: Variant) -> float:
    given = twin(observation.expected.run, variant.replacements)
    if given is None:
        return 1.0
    got, right = observation.comparison.got, observation.expected.rows
    judged = observation.expected.judged[..., None]
    off = float(np.sum(np.where(judged, (got - right) ** 2, 0.0)))
    left = float(np.sum(np.where(judged, (got - given.output.reshape(got.shape)) ** 2, 0.0)))
    small = off <= (0.1 * float(np.abs(right).max())) ** 2 * got.size
    return left**0.5 / off**0.5 if off > 0 and small else 1.0


def _at_once(others: Sequence[Observation]) -> Observation | None:
    """A call without a cache that is right where the failing ones have caches: no fault that shows there is there."""
    return next((o for o in others if o.comparison.agrees and not o.probe.inputs.steps), None)


def _pairs(screen: Observation, right: Observation | None) -> Iterator[tuple[Variant, ...]]:
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
