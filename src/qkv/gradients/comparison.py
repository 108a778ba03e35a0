"""Comparison of gradients: each row by itself, and its bar what rounding does to a plain backward pass on that row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qkv.adapters.pullback import Gradients
from qkv.comparison import EPSILON, FLOOR, MARGIN, Bools, Floats, rounded_run, rounder
from qkv.faults.gradient_scores import log_sums
from qkv.gradients.probes import GradientProbe
from qkv.oracle import Backward, BackwardReplacements, BackwardStage, Run, run_backward
from qkv.oracle.backward import BACKWARD
from qkv.vocabulary import Stage

Named = Callable[[Mapping[str, Floats]], Mapping[str, Floats]]
"""From the oracle's gradients to the candidate's own names and shapes, see the readings' ``named``."""

DRAWS = 8
"""Roundings that the bar is drawn from: more than for the output, since a row of dq is a difference of near numbers."""

COARSE = 1e3
"""Errors beyond so many times the bar are no matter of a bar that is another one under a fault."""


@dataclass(frozen=True, eq=False)
class GradientExpectation:
    """What the oracle says of the backward pass on one probe.

    Attributes:
        run: the oracle's run.
        cotangent: the gradient of its output.
        named: turns gradients into those that the candidate has.
        held_to: the dtype whose rounding is allowed for.
    """

    run: Run
    cotangent: Floats
    named: Named
    held_to: str

    @cached_property
    def right(self) -> Mapping[str, Floats]:
        """The right gradients, by name."""
        return self.under({})

    @cached_property
    def tolerance(self) -> Mapping[str, Floats]:
        """The largest error of each row that still counts as rounding; a row is the last axis."""
        return self.tolerance_under({})

    def under(self, replacements: BackwardReplacements) -> Mapping[str, Floats]:
        """The gradients if these stages were passed another way."""
        return self.named(run_backward(self.run, self.cotangent, replacements).of)

    def tolerance_under(self, replacements: BackwardReplacements) -> Mapping[str, Floats]:
        """The bar if these stages were passed another way: other numbers are rounded."""
        exact = self.under(replacements)
        rounding = {name: np.zeros(array.shape[:-1]) for name, array in exact.items()}
        for draw in range(DRAWS):
            near = self.named(rounded_backward(self.run, self.cotangent, self.held_to, replacements, draw).of)
            for name, array in exact.items():
                off = np.nan_to_num(np.abs(near[name] - array), nan=0.0, posinf=0.0)
                rounding[name] = np.maximum(rounding[name], off.max(axis=-1, initial=0.0))
        floor = FLOOR * EPSILON[self.held_to]
        return {name: np.maximum(MARGIN * rounding[name], floor * magnitude(array)) for name, array in exact.items()}

    def compare(self, got: Gradients) -> dict[str, GradientComparison]:
        """Each of the candidate's gradients beside the right one, by name."""
        return {
            name: GradientComparison(name, array, got.of[name], self.tolerance[name])
            for name, array in self.right.items()
            if name in got.of
        }


@dataclass(frozen=True, eq=False)
class GradientComparison:
    """One of a candidate's gradients beside the right one.

    Attributes:
        name: what it is the gradient of.
        right: the right one.
        got: the candidate's.
        tolerance: largest error of each row that counts as rounding.
    """

    name: str
    right: Floats
    got: Floats
    tolerance: Floats

    @cached_property
    def difference(self) -> Floats:
        """Absolute error of each entry; infinite where it is not a number."""
        return off(self.got, self.right)

    @cached_property
    def wrong(self) -> Bools:
        """Which rows are wrong."""
        return np.asarray(self.difference.max(axis=-1, initial=0.0) > self.tolerance)

    @property
    def agrees(self) -> bool:
        """Whether every row is right."""
        return not self.wrong.any()

    @property
    def first(self) -> tuple[int, ...]:
        """The index of the first entry that is wrong."""
        row = tuple(int(place) for place in np.argwhere(self.wrong)[0])
        return (*row, int(np.argmax(self.difference[row] > self.tolerance[row])))

    @property
    def factor(self) -> float | None:
        """The one number that the right gradient must be multiplied by to give the candidate's; None where none is."""
        square = float(np.sum(self.right**2))
        if square == 0 or not np.isfinite(self.got).all():
            return None
        by = float(np.sum(self.right * self.got)) / square
        near = np.abs(self.got - by * self.right).max(axis=-1, initial=0.0) <= max(abs(by), 1.0) * self.tolerance
        return by if near.all() else None


@dataclass(frozen=True, eq=False)
class GradientObservation:
    """One probe of the backward pass, what was expected of it, and what the candidate gave."""

    probe: GradientProbe
    expected: GradientExpectation
    got: Gradients

    @cached_property
    def compared(self) -> Mapping[str, GradientComparison]:
        """Each gradient beside the right one, by name."""
        return self.expected.compare(self.got)

    @property
    def agrees(self) -> bool:
        """Whether all of them are right."""
        return all(comparison.agrees for comparison in self.compared.values())

    def reproduced(self, replacements: BackwardReplacements) -> dict[str, float]:
        """The gradients that the oracle gives back under a fault: largest error of each, in units of the bar."""
        given = self.expected.under(replacements)
        errors = {name: self._error(name, given, self.expected.tolerance) for name in self.compared}
        if max(errors.values(), default=0.0) > 1.0 and all(self._near(name, given) for name in errors):
            allowed = self.expected.tolerance_under(replacements)
            larger = {name: np.maximum(allowed[name], self.expected.tolerance[name]) for name in self.compared}
            errors = {name: self._error(name, given, larger) for name in self.compared}
        return {name: error for name, error in errors.items() if error <= 1.0}

    def _near(self, name: str, given: Mapping[str, Floats]) -> bool:
        """Whether what is left may be rounding, which grows with the numbers that a fault makes."""
        coarse = EPSILON[self.expected.held_to] * float(np.abs(given[name]).max(initial=0.0))
        coarse = max(coarse, float(self.expected.tolerance[name].max(initial=0.0)))
        return float(off(self.compared[name].got, given[name]).max(initial=0.0)) <= COARSE * coarse

    def _error(self, name: str, given: Mapping[str, Floats], tolerance: Mapping[str, Floats]) -> float:
        worst = off(self.compared[name].got, given[name]).max(axis=-1, initial=0.0) / tolerance[name]
        return float(np.max(worst, initial=0.0))


def off(got: Floats, right: Floats) -> Floats:
    """Absolute error of each entry: infinite where one is not a number, unless both are not."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(got - right)
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def magnitude(array: Floats) -> Floats:
    """The largest entry of each row's head, or matrix."""
    axes = (-2, -1) if array.ndim > 1 else (-1,)
    largest = np.abs(np.nan_to_num(array)).max(axis=axes, keepdims=True, initial=np.finfo(np.float64).tiny)
    return np.asarray(largest[..., 0])


def rounded_backward(
    run: Run, cotangent: Floats, dtype: str, replacements: BackwardReplacements, draw: int = 0
) -> Backward:
    """The same backward pass with every gradient on the way rounded to ``dtype``, after a forward pass likewise.

    Draws above 0 make the weights anew from scores and row sums, as fused kernels do: with large scores that is where
    most of the rounding comes from.

    Args:
        run: the oracle's run.
        cotangent: the gradient of its output.
        dtype: what to round to.
        replacements: stages passed another way.
        draw: see :func:`qkv.comparison.rounded_run`.
    """
    near = rounder(dtype, draw, np.random.default_rng([draw, 1]))

    def rounding(stage: BackwardStage) -> BackwardStage:
        def rounded(before: Backward) -> Backward:
            after = stage(before)
            names = [name for name in _TENSORS if getattr(after, name) is not getattr(before, name)]
            of = {name: array if name in before.of else near(array) for name, array in after.of.items()}
            return after.but(of=of, **{name: near(getattr(after, name)) for name in names})

        return rounded

    with np.errstate(all="ignore"):
        stages = {stage: rounding(passed) for stage, passed in {**BACKWARD, **replacements}.items()}
        forward = rounded_run(run, dtype, {}, draw)
        if draw:
            scores = forward.before[Stage.SOFTMAX].scores
            forward = forward.but(weights=near(np.exp(scores - near(log_sums(forward)))))
        return run_backward(forward, near(cotangent), stages)


_TENSORS = ("context", "weights", "scores", "query", "key", "value")
