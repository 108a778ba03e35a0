"""Observation: one probe, the candidate's numbers beside the oracle's, and whether a fault gives them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np

from qkv.comparison import EPSILON, Comparison, Expectation, Floats, as_rows, tolerance_of
from qkv.diagnosis.twins import IMPOSSIBLE, under
from qkv.faults import Variant
from qkv.oracle import Run, run_stages
from qkv.probes import Probe
from qkv.vocabulary import EmptyRow, Stage

COARSE = 1e4
"""Errors beyond so many times what rounding allows a right candidate aren't rounding under a fault either."""


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
