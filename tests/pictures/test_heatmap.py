"""Heat maps in the terminal: what is hidden, broken, wrong and left out can be read off them."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from qkv.pictures.heatmap import heat_map
from qkv.pictures.heatmap_cells import BROKEN_COLOUR
from qkv.pictures.panels import Panel, compared, panel, shown, written
from qkv.pictures.shades import ABOVE, BELOW, WEIGHT

WIDTH = 80


def causal(length: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Weights of queries that see themselves and what came before, and what is hidden from them."""
    scores = np.random.default_rng(length).normal(size=(length, length))
    hidden = np.triu(np.ones((length, length), bool), 1)
    weights = np.exp(scores) * ~hidden
    return weights / weights.sum(-1, keepdims=True), hidden


def drawn(
    *panels: Panel, colours: str | None = None, encoding: str = "utf-8", width: int = WIDTH, **options: bool
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width + 20, height=40, force_terminal=True, color_system=colours)  # type: ignore[arg-type]
    with console.capture() as captured:
        console.print(heat_map(panels, console, width, **options))
    return captured.get()


def shades(text: str) -> set[str]:
    """Colours in which something is painted."""
    return {f"{r};{g};{b}" for r, g, b in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", text)}


def code(colour: str) -> str:
    return ";".join(map(str, bytes.fromhex(colour[1:])))


def test_few_weights_are_their_numbers_with_tokens_on_both_axes() -> None:
    weights, hidden = np.array([[1.0, 0.0], [0.25, 0.75]]), np.array([[False, True], [False, False]])
    text = drawn(panel("head 0", weights, hidden, query_tokens=["cat", "sat"], key_tokens=["cat", "sat"]))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines == ["       head 0", "         cat  sat", "0 cat   1.00", "1 sat   0.25 0.75", "blank may not attend"]


def test_the_first_wrong_cell_is_marked_and_named_in_every_form() -> None:
    for length in (3, 12, 60):
        right, hidden = causal(length)
        wrong = right.copy()
        wrong[2, :2] = wrong[2, 1::-1]
        text = drawn(*compared(panel("expected", right, hidden), panel("got", wrong, hidden)))
        assert "first wrong: query 2, key 0" in text
        assert text.count("expected") == 2
        assert ("[" in text) == (length < 60)
        assert len(re.findall(r"(?<=[.:=+*#%@~ -])x(?=[.:=+*#%@~ -])", text)) == (4 if length == 60 else 0)
        painted = drawn(*compared(panel("expected", right, hidden), panel("got", wrong, hidden)), colours="truecolor")
        assert len(re.findall("(?<=m)x", painted)) == (3 if length == 60 else 0), "in each of the three"


def test_a_difference_shows_signs_and_nothing_where_there_is_none() -> None:
    right = np.array([[0.5, 0.5], [0.25, 0.75]])
    text = drawn(*compared(panel("expected", right), panel("got", right + np.array([[0, 0], [0.25, -0.25]]))))
    last = text.splitlines()[-4:]
    assert re.search(r"0 +0 +0 *$", last[-3])
    assert re.search(r"\[\+0\.25\]-0\.25 *$", last[-2])


def test_what_rounds_to_zero_has_a_sign_in_a_difference_alone() -> None:
    assert [written(-1e-4, kind, 1.0) for kind in ("weights", "scores", "difference")] == ["0.00", "0.00", "-0.00"]
    assert written(0.0, "difference", 1.0) == "0"


def test_weights_of_many_keys_are_seen_where_they_are_small() -> None:
    even = np.full((100, 100), 0.01)
    even[0] = [1.0, *[0.0] * 99]
    text = drawn(panel("w", even))
    assert "weights  3e-04 or less .:-=+*#%@ 1.00" in text
    assert re.search(r"^ *0 +@.*\n *\d+ +\+{20}", text, re.MULTILINE), (
        "a share of an even row is in the middle of the ramp"
    )


def test_nothing_but_ascii_where_there_are_no_colours_or_no_unicode() -> None:
    weights, hidden = causal(40)
    for text in (
        drawn(panel("w", weights, hidden)),
        drawn(panel("w", weights, hidden), colours="truecolor", ascii_only=True),
        drawn(panel("w", weights, hidden), colours="truecolor", encoding="latin-1"),
        drawn(panel("w", weights, hidden), colours="standard"),
    ):
        assert re.sub(r"\x1b\[[0-9;]*m", "", text).isascii()
        assert "@" in text


def test_colours_put_two_rows_into_one_line() -> None:
    weights, hidden = causal(40)
    text = drawn(panel("w", weights, hidden), colours="truecolor")
    assert len([line for line in text.splitlines() if "▀" in line or "▄" in line]) == 20
    assert code(WEIGHT[-1]) in shades(text), "the largest weight has the deepest shade"
    assert "each cell" not in text


def test_hidden_is_not_zero() -> None:
    zeros = np.zeros((40, 40))
    hidden = np.triu(np.ones((40, 40), bool), 1)
    for text, zero, masked in (
        (drawn(panel("w", zeros, hidden)), ".", " "),
        (drawn(panel("w", zeros, hidden), colours="truecolor"), "▀", "·"),
    ):
        row = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()[10]
        assert zero in row
        assert row.rstrip(" ").count(masked) > 5 or masked == " "
        assert row[-3] == masked or masked == " "
        assert "may not attend" in text


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("length", [3, 30, 300])
def test_what_is_no_number_is_seen(number: float, length: int) -> None:
    weights, hidden = causal(length)
    weights[2, 1] = number
    assert "not a number" in drawn(panel("w", weights, hidden))
    assert ("nan" if np.isnan(number) else "inf" if length == 3 else "!") in drawn(
        panel("w", weights, hidden)
    ) or length > 3
    painted = drawn(panel("w", weights, hidden), colours="truecolor")
    assert ";".join(map(str, BROKEN_COLOUR)) in shades(painted)


def test_large_ones_keep_their_largest_number_and_say_what_a_cell_covers() -> None:
    weights = np.full((1000, 1000), 1e-4)
    weights[777, 333] = 0.9
    text = drawn(panel("w", weights))
    assert sum(line.count("@") for line in text.splitlines() if not line.startswith("weights")) == 1
    assert max(map(len, text.splitlines())) <= WIDTH
    each = re.search(r"each cell is (\d+) queries by (\d+) keys, drawn by its number of largest size", text)
    assert each is not None
    row = next(line for line in text.splitlines() if "@" in line and not line.startswith("weights"))
    first = int(row.split()[0])
    assert first <= 777 < first + int(each[1])


def test_scores_have_two_signs_and_minus_infinity_is_hidden() -> None:
    scores = np.linspace(-2, 2, 1600).reshape(40, 40)
    scores[0, 1:] = -np.inf
    one = panel("scores", scores)
    assert one.kind == "scores"
    assert one.hidden[0].tolist() == [False] + [True] * 39
    text = drawn(one, colours="truecolor")
    assert {code(BELOW[0]), code(ABOVE[-1])} <= shades(text)
    assert "-2.00" in text


def test_a_row_without_any_key_and_a_single_cell() -> None:
    assert "may not attend" in drawn(panel("w", np.zeros((3, 3)), np.ones((3, 3), bool)))
    assert "1.00" in drawn(panel("w", np.ones((1, 1))))
    assert drawn(panel("w", np.full((1, 5000), 0.5)))
    assert drawn(panel("w", np.full((5000, 1), 0.5)), width=40)


def test_tokens_cannot_act_on_the_terminal() -> None:
    tokens = ["\x1b[2J", "\u202eevil", " the", "漢字漢字漢字漢字漢字"]
    text = drawn(panel("w", np.full((4, 4), 0.25), query_tokens=tokens, key_tokens=tokens))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "␣the" in text
    assert shown("a\tb\n") == "a⇥b↵"
