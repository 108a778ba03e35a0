"""Numbers as the page writes them."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.lesson.matrix import Matrix, text, texts
from qkv.lesson.numbers import Lesson
from qkv.lesson.tokens import tokens_of
from qkv.lesson.worksheet import worksheet


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (2.0, "2"),
        (0.5, "0.5"),
        (1 / 3, "0.333"),
        (-0.75, "\u22120.75"),
        (-1e-9, "0"),
        (-0.0004, "0.000"),
        (-np.inf, "\u2212\u221e"),
        (1e6, "1000000"),
    ],
)
def test_a_number_has_as_few_decimals_as_do(number: float, written: str) -> None:
    assert text(number) == written


def test_a_matrix_has_equally_many_decimals_throughout() -> None:
    assert texts(np.array([[1, 0.25], [2, -1]])) == [["1.00", "0.25"], ["2.00", "\u22121.00"]]


def test_only_weights_are_shaded_and_what_is_hidden_is_marked() -> None:
    hidden = np.array([[False, True], [False, False]])
    cells = Matrix("w", np.array([[1, 0], [1.5, 0.25]]), weights=True, hidden=hidden, sums="rows").cells
    assert [[cell.share for cell in row] for row in cells] == [[1.0, 0.0], [1.0, 0.25]]
    assert [[cell.hidden for cell in row] for row in cells] == hidden.tolist()
    assert Matrix("x", np.ones((1, 1))).cells[0][0].share is None


def test_sums_stand_where_they_are_asked_for() -> None:
    array = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert Matrix("w", array, sums="rows").totals == ["3", "8"]
    assert Matrix("w", array, sums="columns").totals == ["4", "7"]


def test_a_worksheet_writes_every_product_out() -> None:
    lesson = Lesson(tokens_of("1 -2; 0.5 1"))
    sheet = worksheet(lesson, 0)
    assert [line.products for line in sheet.lines] == [
        "1·1 + (\u22122)·(\u22122)",
        "1·0.5 + (\u22122)·1",
    ]
    assert [line.score for line in sheet.lines] == ["5.0", "\u22121.5"]
    assert sheet.largest == "5"
