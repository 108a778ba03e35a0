"""The rule that wrong rows suggest, in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qkv.long_sequence.pattern import which_rows

LENGTH = 1000
RULES: dict[str, Callable[[int], bool]] = {
    "every row is wrong": lambda row: True,
    "every row but the last is wrong": lambda row: row < 999,
    "rows from 512 on are wrong": lambda row: row >= 512,
    "rows 0 to 99 are wrong": lambda row: row < 100,
    "rows 64 to 127 are wrong": lambda row: 64 <= row < 128,
    "the last row is wrong": lambda row: row == 999,
    "row 500 is wrong": lambda row: row == 500,
    "row of every 64 is wrong, from 63 on": lambda row: row % 64 == 63,
    "2 rows of every 64 are wrong, from 62 on": lambda row: row % 64 >= 62,
    "nearly every row from 300 on is wrong": lambda row: row >= 300 and row not in (411, 777),
    "3 of 1,000 rows are wrong, the first 7, the last 900": lambda row: row in (7, 30, 900),
}


@pytest.mark.parametrize("words", RULES)
def test_rows_are_told_by_their_rule(words: str) -> None:
    wrong = np.array([[RULES[words](row)] * 2 for row in range(LENGTH)])
    assert which_rows(wrong) == words


def test_heads_are_named_where_some_are_right() -> None:
    wrong = np.zeros((LENGTH, 4), dtype=bool)
    wrong[10:, 2] = True
    assert which_rows(wrong) == "rows from 10 on are wrong, only in head 2"
    wrong[10:, 3] = True
    assert which_rows(wrong) == "rows from 10 on are wrong, only in heads 2, 3"
