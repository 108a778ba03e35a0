"""Answer: what a candidate gave for one long sequence, and any row of it beside the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.messages import Array, DType
from qkv.comparison import DRAWS, Floats, as_seen, expectation
from qkv.diagnosis import Observation
from qkv.errors import CandidateError
from qkv.oracle import Inputs, resume
from qkv.oracle.attention import NO_REPLACEMENTS
from qkv.oracle.blocks import ALL, Block, all_heads
from qkv.oracle.streaming import THREADS
from qkv.probes import Probe
from qkv.settling import Trial
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

MOST_SCORES = 1 << 18
"""Scores of rows that are looked at together: 2 MiB, and about ten times as much while they are."""


@dataclass(frozen=True)
class Answer:
    """One call at one length.

    Attributes:
        spec: what was meant.
        probe: what was given, as the candidate saw it: in its own precision.
        output: what it gave, ``(1, query, width)``.
        dtype: the precision that it computed in.
        asked_for: the precision that the user wants it run in; None where nothing was said.
        judge_empty_rows: whether rows that may attend to nothing count.
    """

    spec: AttentionSpec
    probe: Probe
    output: Floats
    dtype: str
    asked_for: DType | None
    judge_empty_rows: bool

    @property
    def length(self) -> int:
        """How many tokens."""
        return int(self.output.shape[1])

    @property
    def row_heads(self) -> int:
        """How many heads the rows of the output can be told apart into: 1 behind an output projection."""
        return 1 if self.projects else self.spec.num_heads

    @property
    def projects(self) -> bool:
        """Whether an output projection has mixed the heads."""
        parameters = self.probe.inputs.parameters
        return self.spec.out_proj and parameters is not None and parameters.out_proj is not None

    @property
    def rows_at_once(self) -> int:
        """How many rows can be looked at together in little memory."""
        return max(MOST_SCORES // (self.spec.num_heads * self.length), 1)

    @cached_property
    def _heads(self) -> Block:
        return all_heads(self.spec, self.probe.inputs)

    def rows(self, queries: Sequence[int], *, draws: int = DRAWS) -> Observation:
        """All heads of some queries, as the oracle computes them from all the keys; judged as every row is.

        Args:
            queries: which ones.
            draws: how many roundings the bars are drawn from; without any, see `expectation`.
        """
        chosen = np.array(queries)
        with np.errstate(all="ignore"):
            run = resume(self._heads.cut(chosen, ALL), NO_REPLACEMENTS, Stage.POSITION.order)
            expected = expectation(run, self.dtype, judge_empty_rows=self.judge_empty_rows, draws=draws)
        return Observation(self.probe, expected, self.output[:, chosen])


def answered(trial: Trial, length: int, dtype: DType | None = None) -> Answer:
    """What the candidate gives at a length.

    Args:
        trial: the candidate, as it was read.
        length: how many tokens.
        dtype: the precision to run it in; None means the one it takes, but float32 for float64: it is held to float32
            anyway, and needs half the memory.

    Raises:
        CandidateError: it can't be called at this length.
    """
    reading, most = trial.called, trial.called.abilities.max_tokens
    name = f"length {length}"
    caller = reading.caller
    run_in = dtype or ("float32" if caller.dtype in (None, "float64") else caller.dtype)
    seen = _inputs(trial, name, length, run_in)
    at_length = replace(caller, dtype=run_in, threads=THREADS)
    in_it = replace(reading, caller=at_length)  # type: ignore[type-var]  # every one is a dataclass
    try:
        outcome = in_it.observe(seen)
    except NotApplicable:
        raise CandidateError(f"a sequence of {length:,} tokens can't be put into its arguments") from None
    except CandidateError as error:
        if most is None or most >= length or error.fatal:
            raise
        raise CandidateError(
            f"it was built for {most:,} tokens, and {length:,} were asked for: {error.message}",
            hint=f"build it for more with --init, or ask for less: --length {most}",
            detail=error.detail,
        ) from None
    for part in ("query", "key", "value"):  # one after the other, so that two precisions of all are never held together
        if getattr(seen, part) is not None:
            seen = seen.but(**{part: _precise(getattr(seen, part))})
    probe = Probe(name, "what only length brings", seen.map(_precise))
    return Answer(reading.spec, probe, outcome.output, outcome.dtype, dtype, trial.judge_empty_rows)


def _inputs(trial: Trial, name: str, length: int, dtype: DType) -> Inputs:
    """Random inputs as the candidate sees them in a precision, in no more memory than that takes."""
    precision = np.float64 if dtype == "float64" else np.float32
    return as_seen(trial.setting.inputs(name, batch=1, queries=length, precision=precision), dtype)


def _precise(array: Array) -> Array:
    """The array in float64, if it holds floating numbers."""
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array
