"""Helpers: what the templates of pages are given beside the document, to write it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from qkv.report.changes import DiffLine, Marked, changed_places
from qkv.report.digits import MOST_NUMBERS, RowTexts, apart, left_out, numbers, row_texts, told_apart
from qkv.report.document import CandidateWords, Example, Report, RowPair
from qkv.report.highlighting import highlighted
from qkv.report.places import TWO_DUMPS, first_inside, place_of
from qkv.spec import describe
from qkv.vocabulary import Stage

TONES = {"right": "right", "wrong": "wrong", "undecided": "unsure", "failed": "wrong", "known": "right",
         "part": "unsure", "none": "wrong"}  # fmt: skip
"""The colour of each answer."""

MOST_CHANNELS = 12
"""Numbers of a row that are put side by side."""

MOST_LINES = 6
"""Lines of a repair that stand at the top of a page."""

ROOMY = 8
"""Columns of a matrix up to which three fit beside each other with all of their digits."""

MOST_INDENT = 12
"""Columns; what is indented by more has no room on a phone."""

MOST_HEADS, MOST_QUERIES = 16, 64
"""Rows and columns of the picture of which rows are wrong."""


def common_name(candidate: CandidateWords) -> str:
    """What a candidate is called: by its name, or by its file."""
    return candidate.name or candidate.file


def row_cells(pair: RowPair) -> RowTexts:
    """The numbers of both rows that are put side by side."""
    return row_texts(pair, MOST_CHANNELS)


@dataclass(frozen=True)
class Short:
    """A repair in a glance.

    Attributes:
        word: what is to be done.
        line: the line that the report is about, with what changes of it marked; empty where others change too.
        lines: the first lines that change, or what to write in place of that line; each with the number of its place
            where it begins one.
        more: how many more there are.
    """

    word: str
    line: Sequence[Marked]
    lines: Sequence[tuple[int | None, str, Marked]]
    more: int


def in_short(report: Report, diff: Sequence[DiffLine]) -> Short:
    """What is to be changed in a few lines: beside the line that the report is about, if it is all that changes."""
    found = changed_places(diff)
    blamed = report.line and (report.line.file, report.line.line)
    at_the_line = len(found) == 1 and report.patch is not None and blamed == (report.patch.file, found[0].number)
    if at_the_line and found[0].removed and found[0].added:
        lines: list[tuple[int | None, str, Marked]] = [(None, "", line) for line in found[0].added]
        return _cut_short("write", found[0].removed, lines)
    lines = []
    for place in found:
        signed = [*(("-", line) for line in place.removed), *(("+", line) for line in place.added)]
        lines += [(None if at else place.number, sign, line) for at, (sign, line) in enumerate(signed)]
    return _cut_short("change" if any(place.added for place in found) else "remove", (), lines)


def _cut_short(word: str, line: Sequence[Marked], lines: Sequence[tuple[int | None, str, Marked]]) -> Short:
    shown = lines if len(lines) <= MOST_LINES else lines[: MOST_LINES - 1]
    return Short(word, line, shown, len(lines) - len(shown))


def dedented(code: str) -> list[str]:
    """The lines of a piece of code, without what all of them are indented by."""
    return dedent(code).strip().splitlines()


def zero_apart(text: str) -> tuple[str, str, str]:
    """A number as its sign, the zero in front of its point, which may be left out, and the rest."""
    found = re.fullmatch("([+\u2212]?)(0?)([.].*)", text)
    return (found[1], found[2], found[3]) if found else (text, "", "")


def indent(pieces: Sequence[tuple[object, str]]) -> int:
    """How far a line of code is indented: the rest of one that is too long for a page stands further in."""
    text = "".join(text for _, text in pieces)
    return min(len(text) - len(text.lstrip()), MOST_INDENT)


def array_text(example: Example) -> list[tuple[str, str]]:
    """The name and the numbers of each array of the smallest example that isn't too large."""
    arrays, _ = example.arrays(MOST_NUMBERS)
    return [(name, numbers(array, 64)) for name, array in arrays]


def size(value: float | None) -> str:
    """An error or a tolerance; empty for none."""
    return "" if value is None else f"{value:.1e}".replace("-", "\u2212")


HELPERS: Mapping[str, Any] = {
    "apart": apart,
    "array_text": array_text,
    "common_name": common_name,
    "dedented": dedented,
    "describe": describe,
    "first_inside": first_inside,
    "highlighted": highlighted,
    "in_short": in_short,
    "indent": indent,
    "left_out": left_out,
    "most_heads": MOST_HEADS,
    "most_queries": MOST_QUERIES,
    "place_of": place_of,
    "roomy": ROOMY,
    "row_cells": row_cells,
    "size": size,
    "stages": [stage.value for stage in Stage],
    "told_apart": told_apart,
    "tones": TONES,
    "two_dumps": TWO_DUMPS,
    "zero_apart": zero_apart,
}
"""All of them, by the names that templates know."""
