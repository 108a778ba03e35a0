"""The tables of a report's page: two colours for two signs, hidden cells as in a figure, and words where they help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.console import Console

from qkv.report import CandidateWords, Report, Verdict
from qkv.report.grids import Triple, triple
from qkv.report.matrices import Matrices, beside_row, unlike
from qkv.report.pictured import panels
from qkv.report.terminal import report_text


def kinds(of: Triple, grid: int) -> list[list[str]]:
    return [[cell.kind for cell in cells] for _, cells in of.grids[grid].rows]


def test_numbers_of_either_sign_have_two_colours_and_zero_none() -> None:
    expected, got = np.array([[-4.0, 0.0, 2.0]]), np.array([[-4.0, 1.0, 2.0]])
    of = triple(Matrices("context", ("query", "channel"), expected, got, unlike(expected, got)))
    assert of.signed
    assert kinds(of, 0) == [["less", "plain", "more"]]
    assert [cell.shade for cell in of.grids[0].rows[0][1]] == [1.0, 0.0, 0.5]
    weights = np.array([[0.25, 0.75]])
    assert not triple(Matrices("attn_weights", ("query", "key"), weights, weights, weights > 1)).signed


def test_what_is_hidden_is_the_same_in_the_page_and_in_a_figure() -> None:
    expected = np.array([[1.0, 0.0], [0.5, 0.5]])
    got = np.array([[1.0, -1e-18], [0.25, 0.75]])  # read from outside, and so not quite zero
    hidden = np.array([[False, True], [False, False]]), np.zeros((2, 2), bool)
    of = Matrices("attn_weights", ("query", "key"), expected, got, unlike(expected, got), hidden)
    drawn = triple(of)
    for grid, panel in enumerate(panels(of, ("expected", "got"))):
        assert panel.hidden.tolist() == [[False, True], [False, False]]
        assert [[kind == "hidden" for kind in row] for row in kinds(drawn, grid)] == panel.hidden.tolist()


def test_sums_are_shown_where_they_are_what_is_wrong() -> None:
    hidden = ~np.tri(3, dtype=bool)
    scores = np.exp(np.where(hidden, -np.inf, np.arange(9.0).reshape(3, 3) / 9))
    right, wrong = scores / scores.sum(1, keepdims=True), scores / scores.sum(0)
    over = triple(Matrices("attn_weights", ("query", "key"), right, wrong, unlike(right, wrong), (hidden, hidden)))
    for grid, weights in zip(over.grids, (right, wrong), strict=False):
        assert grid.columns[-1] == "sum"
        assert [cells[-1].text for _, cells in grid.rows[:3]] == [f"{total:.3f}" for total in weights.sum(1)]
        assert grid.rows[3][0] == "sum"
        assert [cell.text for cell in grid.rows[3][1]] == [*(f"{total:.3f}" for total in weights.sum(0)), ""]
    assert over.grids[2].columns == ["key 0", "key 1", "key 2"]
    late = triple(Matrices("attn_weights", ("query", "key"), right, right / 2, ~hidden, (hidden, hidden)))
    assert [name for name, _ in late.grids[1].rows] == ["query 0", "query 1", "query 2"], "columns are no question here"
    other = triple(Matrices("attn_weights", ("query", "key"), right, right[:, ::-1], ~hidden))
    assert other.grids[1].columns == ["key 0", "key 1", "key 2"], "each row sums to 1 on both sides"


def test_a_score_that_a_mask_should_hide_is_infinitely_too_much() -> None:
    expected, got = np.array([[1.0, -np.inf]]), np.array([[1.0, -3.0]])
    difference = triple(Matrices("attn_scores", ("query", "key"), expected, got, unlike(expected, got))).grids[2]
    assert [(cell.kind, cell.text) for cell in difference.rows[0][1]] == [("same", "0"), ("more", "+∞")]


def test_it_is_said_why_the_first_wrong_cell_is_not_in_the_first_wrong_row() -> None:
    expected, got = np.array([[1.0, 0.0], [0.25, 0.75]]), np.array([[1.0, 0.0], [0.5, 0.5]])
    hidden = np.array([[False, True], [False, False]])
    of = Matrices("attn_weights, head 1", ("query", "key"), expected, got, unlike(expected, got), (hidden, hidden))
    assert beside_row(of, 1).aside == ""
    said = beside_row(of, 0).aside
    assert said.startswith("Token 0 comes out wrong with the right attn_weights: it may attend to one key alone")
    assert said.endswith("those of query 1")
    assert "what is made of them is wrong" in beside_row(replace(of, hidden=None), 0).aside
    report = Report(Verdict.WRONG, CandidateWords("f"), matrices=[replace(of, aside=said)])
    assert triple(report.matrices[0]).aside == report.pictured().aside == said
    assert said in " ".join(report_text(report, Console(width=200), inside=True).split())
