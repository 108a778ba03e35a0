"""Helpers: what the templates of pages are given beside the document, to write it out."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import numpy as np

from qkv.report.document import CandidateWords, Example, Patch, Report, RowPair, Verdict
from qkv.report.highlighting import highlighted
from qkv.report.matrices import unlike
from qkv.report.places import TWO_DUMPS, number, place_of, told_apart
from qkv.spec import describe
from qkv.vocabulary import Stage

MARKS = {Verdict.RIGHT: "✓", Verdict.WRONG: "✗", Verdict.UNDECIDED: "?", Verdict.FAILED: "!"}

TONES = {"right": "right", "wrong": "wrong", "undecided": "unsure", "failed": "wrong", "known": "right",
         "part": "unsure", "none": "wrong"}  # fmt: skip
"""The colour of each answer."""

MOST_CHANNELS = 12
"""Numbers of a row that are put side by side."""

MOST_HEADS, MOST_QUERIES = 16, 64
"""Rows and columns of the picture of which rows are wrong."""


def common_name(candidate: CandidateWords) -> str:
    """What a candidate is called: by its name, or by its file."""
    return candidate.name or candidate.file


def row_cells(pair: RowPair) -> tuple[list[list[tuple[str, bool]]], int]:
    """The numbers of both rows, each with whether the two differ there; and how many are left out."""
    expected, got = (np.asarray(row, float) for row in (pair.expected, pair.got))
    off = unlike(expected, got)
    shown = [list(zip(map(number, row[:MOST_CHANNELS]), map(bool, off), strict=False)) for row in (expected, got)]
    return shown, max(len(expected) - MOST_CHANNELS, 0)


def diff_lines(patch: Patch) -> list[tuple[str, str]]:
    """The lines of a diff, each with its sign: ``-``, ``+``, a space, or ``@`` before the number of a line."""
    lines = []
    for line in patch.diff.splitlines()[2:]:
        if line.startswith("@@"):
            lines.append(("@", f"line {line.split()[1].partition(',')[0][1:]} and on"))
        else:
            lines.append((line[:1] or " ", line[1:]))
    return lines


def dedented(code: str) -> list[str]:
    """The lines of a piece of code, without what all of them are indented by."""
    return dedent(code).strip().splitlines()


def array_text(example: Example) -> list[tuple[str, str]]:
    """The name and the numbers of each input of the smallest example."""
    return [(name, _numbers(np.asarray(array))) for name, array in example.tensors]


def _numbers(array: Any) -> str:
    shown = np.squeeze(array) if array.ndim > 2 else array
    formats: Any = {"bool": lambda value: "1" if value else "0"}
    return np.array2string(shown, precision=4, suppress_small=True, separator=" ", max_line_width=64, formatter=formats)


def disagrees(report: Report) -> bool:
    """Whether the picture of wrong rows shows more than one row."""
    return len(report.wrong) > 1 or any(len(head) > 1 for head in report.wrong)


def size(value: float | None) -> str:
    """An error or a tolerance; empty for none."""
    return "" if value is None else f"{value:.1e}".replace("-", "\u2212")


HELPERS: Mapping[str, Any] = {
    "array_text": array_text,
    "common_name": common_name,
    "dedented": dedented,
    "describe": describe,
    "diff_lines": diff_lines,
    "disagrees": disagrees,
    "highlighted": highlighted,
    "marks": MARKS,
    "most_heads": MOST_HEADS,
    "most_queries": MOST_QUERIES,
    "number": number,
    "place_of": place_of,
    "row_cells": row_cells,
    "size": size,
    "stages": [stage.value for stage in Stage],
    "told_apart": told_apart,
    "tones": TONES,
    "two_dumps": TWO_DUMPS,
}
"""All of them, by the names that templates know."""
