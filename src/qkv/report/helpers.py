"""Helpers: what the templates of pages are given beside the document, to write it out."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from qkv.report.digits import MOST_NUMBERS, RowTexts, apart, left_out, numbers, row_texts, told_apart
from qkv.report.document import CandidateWords, Example, Patch, RowPair
from qkv.report.highlighting import highlighted
from qkv.report.places import TWO_DUMPS, place_of
from qkv.spec import describe
from qkv.vocabulary import Stage

TONES = {"right": "right", "wrong": "wrong", "undecided": "unsure", "failed": "wrong", "known": "right",
         "part": "unsure", "none": "wrong"}  # fmt: skip
"""The colour of each answer."""

MOST_CHANNELS = 12
"""Numbers of a row that are put side by side."""

MOST_LINES = 6
"""Lines of a repair that stand at the top of a page."""

MOST_HEADS, MOST_QUERIES = 16, 64
"""Rows and columns of the picture of which rows are wrong."""


def common_name(candidate: CandidateWords) -> str:
    """What a candidate is called: by its name, or by its file."""
    return candidate.name or candidate.file


def row_cells(pair: RowPair) -> RowTexts:
    """The numbers of both rows that are put side by side."""
    return row_texts(pair, MOST_CHANNELS)


def diff_lines(patch: Patch) -> list[tuple[str, str]]:
    """The lines of a diff, each with its sign: ``-``, ``+``, a space, or ``@`` before the number of a line."""
    lines = []
    for line in patch.diff.splitlines()[2:]:
        if line.startswith("@@"):
            lines.append(("@", f"line {line.split()[1].partition(',')[0][1:]} and on"))
        else:
            lines.append((line[:1] or " ", line[1:]))
    return lines


def in_short(patch: Patch) -> tuple[str, list[str], int]:
    """What is to be done with a few lines, in a word; these lines; and how many more there are."""
    changed = diff_lines(patch)
    added = [text for sign, text in changed if sign == "+"]
    lines = dedented("\n".join(added or [text for sign, text in changed if sign == "-"]))
    shown = lines if len(lines) <= MOST_LINES else lines[: MOST_LINES - 1]
    return "write" if added else "remove", shown, len(lines) - len(shown)


def dedented(code: str) -> list[str]:
    """The lines of a piece of code, without what all of them are indented by."""
    return dedent(code).strip().splitlines()


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
    "diff_lines": diff_lines,
    "highlighted": highlighted,
    "in_short": in_short,
    "left_out": left_out,
    "most_heads": MOST_HEADS,
    "most_queries": MOST_QUERIES,
    "place_of": place_of,
    "row_cells": row_cells,
    "size": size,
    "stages": [stage.value for stage in Stage],
    "told_apart": told_apart,
    "tones": TONES,
    "two_dumps": TWO_DUMPS,
}
"""All of them, by the names that templates know."""
