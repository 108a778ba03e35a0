"""The end of what a candidate printed begins with a whole line."""

from __future__ import annotations

import pytest

from qkv.adapters.endings import end_of
from qkv.adapters.surroundings import PRINTED, captured


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("short", "short"),
        ("first\ntwo\nlast", "…\ntwo\nlast"),
        ("another\n  two more\nlast", "…\nlast"),
        ("no line break at all", "…eak at all"),
        ("first\na longer line\n", "…nger line\n"),
    ],
)
def test_no_line_is_cut_without_a_mark(text: str, end: str) -> None:
    assert end_of(text, 12) == end
    assert len(end) <= 12


def test_what_is_left_of_much_that_is_printed_is_marked() -> None:
    with captured() as printed:
        for number in range(PRINTED):
            print(f"𝄞 line {number}")  # four bytes for the first character
    lines = printed.tail().splitlines()
    assert lines[0] == "…"
    assert lines[1].startswith("𝄞 line ")
    assert lines[-1] == f"𝄞 line {PRINTED - 1}"
