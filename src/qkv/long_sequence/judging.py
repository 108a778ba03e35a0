"""Judging a long sequence: screen every row, look closely at those that stand out, and find the rule and the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from qkv.adapters.messages import DType
from qkv.comparison import Bools
from qkv.diagnosis import Diagnosis, Observation
from qkv.errors import CandidateError
from qkv.long_sequence.answer import Answer, answered
from qkv.long_sequence.pattern import shortest_wrong, which_rows
from qkv.long_sequence.screening import Screen, in_parts, screen
from qkv.long_sequence.suspects import diagnosed
from qkv.long_sequence.together import Drift, drifting
from qkv.settling import Trial

PARTS = 6
"""Parts of a sequence: in each the row furthest off is looked at closely, which costs its keys in all heads."""

MOST_ROWS = 24
"""Rows that are looked at closely once one of them was wrong."""

KEPT = 3
"""Wrong rows, and right ones, that a fault has to reproduce."""


@dataclass
class LongSequence:
    """What came of one long call.

    Attributes:
        length: how many tokens.
        refused: why the candidate could not be called; None where it could.
        answer: what it gave.
        screen: every row, as far as it was compared.
        looked_at: rows that were looked at closely, and whether each is wrong in any head.
        error: the largest error of these rows.
        allowed: the largest error that would count as rounding in one of them.
        first: an observation whose first row is the first wrong one, and that row's number; None where none is wrong.
        only_when: the rule for the lengths at which it is wrong; None where nothing is wrong or no rule was found.
        diagnosis: the fault.
        drift: the fault that rows show together, where none is wrong by itself.
    """

    length: int
    refused: CandidateError | None = None
    answer: Answer | None = None
    screen: Screen | None = None
    looked_at: dict[int, bool] = field(default_factory=dict)
    error: float = 0.0
    allowed: float = 0.0
    first: tuple[int, Observation] | None = None
    only_when: str | None = None
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    drift: Drift | None = None

    @property
    def rows_seen(self) -> int:
        """How many rows of all heads were compared."""
        return 0 if self.screen is None else int(self.screen.seen.sum())

    @property
    def share_seen(self) -> float:
        """The share of rows that were compared; less than 1 after an interruption."""
        return 0.0 if self.screen is None else float(self.screen.seen.mean())

    @property
    def wrong_rows(self) -> Bools:
        """Which rows are wrong, ``(query, head)``: those that are further off than any that is right closely.

        An empty row whose rule nobody stated is right whatever it holds, and says nothing of others.
        """
        assert self.screen is not None
        right = [query for query, wrong in self.looked_at.items() if not wrong]
        off = np.nan_to_num(self.screen.off, posinf=np.inf)
        off[right] = np.where(np.isinf(off[right]), 0.0, off[right])
        return off > max(float(off[right].max(initial=0.0)), 1.0)

    @property
    def spread(self) -> str:
        """Which rows are wrong, in words."""
        wrong = self.wrong_rows
        if not wrong.any():
            return f"{sum(self.looked_at.values())} of {len(self.looked_at)} rows that were looked at closely are wrong"
        return which_rows(wrong)


def judged_at(
    trial: Trial, length: int, *, dtype: DType | None = None, advance: Callable[[float], None] = lambda share: None
) -> LongSequence:
    """What a candidate that is right so far gives at a length. Interrupted, it says how much of it was seen.

    Args:
        trial: the candidate, as it was read.
        length: how many tokens.
        dtype: the precision to run it in, where it was asked for.
        advance: is told the share of the work done since it was told last.
    """
    long = LongSequence(length)
    try:
        long.answer = answered(trial, length, dtype)
        long.screen = screen(long.answer, advance)
        _look_closely(long, long.answer, long.screen)
        with threadpool_limits(1, user_api="blas"):  # a search makes many products, each too little for several threads
            _explain(long, long.answer, trial)
    except CandidateError as error:
        long.refused = error
    except KeyboardInterrupt:
        pass  # what is known so far is the answer
    return long


def _explain(long: LongSequence, answer: Answer, trial: Trial) -> None:
    """Nothing; looks for the rule and the fault."""
    wrong = sorted(query for query, is_wrong in long.looked_at.items() if is_wrong)
    if not wrong:
        long.drift = drifting(answer)
        return
    long.first = wrong[0], answer.rows(wrong[:1])
    long.only_when = shortest_wrong(trial, answer)
    long.diagnosis = diagnosed(trial, answer, _told_apart(long, wrong), wrong[0])


def _look_closely(long: LongSequence, answer: Answer, found: Screen) -> None:
    """Nothing; judges the rows furthest off, and where one is wrong the first ones that stand out and some all over."""
    _judge(long, answer, [*found.furthest(PARTS), 0, answer.length - 1])
    if not any(long.looked_at.values()):
        return
    rows = [int(row) for row in np.flatnonzero(long.wrong_rows.any(axis=1))]
    few = MOST_ROWS // 2
    chosen = [*rows[:few], *rows[few :: max((len(rows) - few) // few, 1)], *rows[-1:]]
    _judge(long, answer, [*(row - 1 for row in rows[:1] if row), *chosen])


def _judge(long: LongSequence, answer: Answer, rows: Sequence[int]) -> None:
    """Nothing; judges those of the rows that were not looked at yet."""
    new = [row for row in dict.fromkeys(rows) if row not in long.looked_at]
    for queries in in_parts(new, answer.rows_at_once):
        observation = answer.rows(queries)
        wrong = observation.comparison.wrong[0].any(axis=1)  # query
        long.error = max(long.error, observation.comparison.max_error)
        long.allowed = max(long.allowed, float(observation.expected.tolerance.max()))
        long.looked_at |= {query: bool(is_wrong) for query, is_wrong in zip(queries, wrong, strict=True)}


def _told_apart(long: LongSequence, wrong: Sequence[int]) -> list[Observation]:
    """The rows that a fault has to reproduce: the first wrong ones and the last, and right ones."""
    assert long.answer is not None
    right = sorted(query for query, is_wrong in long.looked_at.items() if not is_wrong)
    groups = list(dict.fromkeys((*wrong[: KEPT - 1], *wrong[-1:]))), right[-KEPT:]
    return [long.answer.rows(group) for group in groups if group]
