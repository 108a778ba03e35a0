"""Pattern: the rule that wrong rows suggest, and the shortest sequence that has any."""

from __future__ import annotations

import numpy as np

from qkv.comparison import Bools
from qkv.errors import CandidateError
from qkv.long_sequence.answer import Answer, answered
from qkv.long_sequence.suspects import longest_probe
from qkv.settling import Trial

PERIODS = 4096
"""The longest period that is looked for."""


def which_rows(wrong: Bools) -> str:
    """Which rows are wrong, in words.

    Args:
        wrong: ``(query, head)``.
    """
    per_query, per_head = np.asarray(wrong.any(axis=1)), np.asarray(wrong.any(axis=0))
    heads = np.flatnonzero(per_head)
    only = "" if len(heads) == len(per_head) else f", only in head{'s'[: len(heads) > 1]} {', '.join(map(str, heads))}"
    return _rows(per_query) + only


def _rows(wrong: Bools) -> str:
    places = np.flatnonzero(wrong)
    first, last, count = int(places[0]), int(places[-1]), len(places)
    if count == len(wrong):
        return "every row is wrong"
    if count == 1:
        return "the last row is wrong" if first == len(wrong) - 1 else f"row {first:,} is wrong"
    if first == 0 and count == last + 1 == len(wrong) - 1:
        return "every row but the last is wrong"
    if count == last - first + 1:
        return f"rows {first:,} to {last:,} are wrong" if last < len(wrong) - 1 else f"rows from {first:,} on are wrong"
    period = _period(wrong[first:])
    if period is not None:
        of_each = int(wrong[first : first + period].sum())
        rows = "row" if of_each == 1 else f"{of_each} rows"
        return f"{rows} of every {period:,} {'is' if of_each == 1 else 'are'} wrong, from {first:,} on"
    if count > 0.9 * (len(wrong) - first):
        return f"nearly every row from {first:,} on is wrong"
    return f"{count:,} of {len(wrong):,} rows are wrong, the first {first:,}, the last {last:,}"


def _period(wrong: Bools) -> int | None:
    """The least period of the rows from the first wrong one on; None where they have none."""
    for period in range(2, min(PERIODS, len(wrong) // 2) + 1):
        if wrong[period] and np.array_equal(wrong[period:], wrong[:-period]):
            return period
    return None


def shortest_wrong(trial: Trial, answer: Answer) -> str | None:
    """The shortest sequence at which the candidate is wrong, as a rule; None where its length makes no difference.

    A first row that is wrong was right in shorter sequences. From which length on it is wrong is looked for by halving,
    between the longest probe and this length, and said where it is right just below.
    """
    if answer.rows([0]).comparison.agrees:
        return None
    right, wrong = longest_probe(trial), answer.length
    while wrong - right > 1:
        middle = (right + wrong) // 2
        try:
            agrees = answered(trial, middle, answer.asked_for).rows([0, middle - 1]).comparison.agrees
        except CandidateError:
            return None
        right, wrong = (middle, wrong) if agrees else (right, middle)
    return f"a sequence has {wrong:,} tokens or more; with {right:,} it is right"
