"""Spread: which rows are wrong, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from qkv.spread import describe_spread

SHAPE = (2, 6, 4)
"""Sequences, queries and heads."""

Bools = np.ndarray

ALL = slice(None)


def rows(*places: tuple[object, object, object]) -> Bools:
    """True at these places ``(batch, query, head)``, each a number, a list or a slice."""
    marked = np.zeros(SHAPE, dtype=bool)
    for batch, query, head in places:
        chosen = [np.arange(size)[one] for size, one in zip(SHAPE, (batch, query, head), strict=True)]
        marked[np.ix_(*(np.atleast_1d(one) for one in chosen))] = True
    return marked


SAID = [
    ([], "every row is right"),
    ([(ALL, ALL, ALL)], "every row is wrong"),
    ([(ALL, slice(1, None), ALL)], "only row 0 is right"),
    ([(ALL, slice(0, 5), ALL)], "only the last row is right"),
    ([(ALL, slice(2, None), ALL)], "rows from 2 on are wrong"),
    ([(ALL, 5, ALL)], "rows from 5 on are wrong"),
    ([(ALL, 3, ALL)], "row 3 is wrong"),
    ([(ALL, [1, 3], ALL)], "rows 1 and 3 are wrong"),
    ([(ALL, [0, 1, 3], ALL)], "rows 0, 1 and 3 are wrong"),
    ([(ALL, ALL, 2)], "every row is wrong, only in head 2 of 4"),
    ([(ALL, ALL, [1, 3])], "every row is wrong, only in heads 1 and 3 of 4"),
    ([(1, ALL, ALL)], "every row is wrong, only in sequence 1 of 2"),
    ([(0, 4, [0, 1, 2])], "row 4 is wrong, only in heads 0, 1 and 2 of 4, only in sequence 0 of 2"),
    ([(0, 1, 0), (1, 2, 3)], "rows 1 and 2 are wrong, only in heads 0 and 3 of 4"),
]


@pytest.mark.parametrize(("places", "words"), SAID, ids=[words for _, words in SAID])
def test_which_rows_are_wrong(places: Sequence[tuple[object, object, object]], words: str) -> None:
    assert describe_spread(rows(*places), np.ones(SHAPE, dtype=bool)) == words


def test_rows_that_do_not_count_are_not_called_right() -> None:
    wrong = rows((ALL, slice(0, 4), ALL))
    judged = rows((ALL, slice(0, 4), ALL))  # the last two are padding
    assert describe_spread(wrong, judged) == "every row is wrong"
    assert describe_spread(wrong, np.ones(SHAPE, dtype=bool)) == "rows 0, 1, 2 and 3 are wrong"
    assert describe_spread(rows((ALL, slice(1, 4), ALL)), judged) == "only row 0 is right"


def test_a_single_row() -> None:
    assert describe_spread(np.ones((2, 1, 3), dtype=bool), np.ones((2, 1, 3), dtype=bool)) == "the only row is wrong"


def test_more_rows_than_anybody_reads_are_counted() -> None:
    wrong = np.zeros((1, 40, 1), dtype=bool)
    wrong[0, 1:30:2] = True
    said = describe_spread(wrong, np.ones_like(wrong))
    assert said == "rows 1, 3, 5, 7, 9, 11, 13 and 15 and 7 more are wrong"
