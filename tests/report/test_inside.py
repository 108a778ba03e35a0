"""What is wrong inside, beside what it should be: in the terminal with --verbose, and as a figure."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

import qkv
from qkv.errors import SpecError
from qkv.report import Report, to_json
from qkv.report.terminal import print_report


def attention(late: bool, merged: float = 1.0) -> Callable[..., Any]:
    """A causal attention, whose mask may come after the softmax, and whose output may be scaled."""

    def function(query: NDArray[Any], key: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        scores = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
        seen = np.tril(np.ones(scores.shape[-2:], bool), scores.shape[-1] - scores.shape[-2])
        weights = np.exp(scores) * (1 if late else seen)
        return merged * ((weights / weights.sum(-1, keepdims=True) * seen) @ value)

    return function


@pytest.fixture(scope="module")
def late() -> Report:
    return qkv.check(attention(late=True), {"causal": True, "num_heads": 2})


def text(report: Report, *, verbose: bool, width: int = 100) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=width, no_color=True, highlight=False), verbose=verbose)
    return stream.getvalue()


def test_verbose_draws_the_weights_that_are_wrong(late: Report) -> None:
    told = text(late, verbose=True)
    inside = told[told.index("  inside    ") :]
    assert inside.startswith("  inside    attn_weights, head 0")
    assert "query down, key across" in inside.splitlines()[0]
    assert "got \u2212 expected" in inside
    assert "[] first wrong: query 0, key 0" in inside
    assert "[1.00]" in inside, "the first token has but itself"
    assert "  inside    " not in text(late, verbose=False)
    assert max(map(len, text(late, verbose=True, width=60).splitlines())) <= 60


def test_programs_are_told_the_same_as_before(late: Report) -> None:
    assert "matrices" not in to_json(late)


def test_a_report_is_drawn_with_the_same_cell_outlined(late: Report) -> None:
    figure = qkv.draw(late)
    assert figure.get_suptitle().startswith("attn_weights, head 0")
    assert [axes.get_title() for axes in figure.axes[:3]] == ["expected", "got", "got \u2212 expected"]
    (mark,) = [one for one in figure.axes[2].patches if one.get_gid() == "first-wrong"]
    assert mark.get_bbox().min.tolist() == [-0.5, -0.5]


def test_where_the_weights_are_right_what_is_made_of_them_is_drawn() -> None:
    report = qkv.check(attention(late=False, merged=2.0), {"causal": True, "num_heads": 2})
    told = text(report, verbose=True)
    assert "query down, channel across" in told
    assert qkv.draw(report).axes[0].get_xlabel() == "channel"


def test_a_right_one_has_nothing_to_draw() -> None:
    report = qkv.check(attention(late=False), {"causal": True, "num_heads": 2})
    assert report.verdict == "right"
    with pytest.raises(SpecError, match="only the report on a wrong attention has matrices"):
        qkv.draw(report)
    assert "  inside    " not in text(report, verbose=True)
