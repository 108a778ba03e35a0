"""The report as one HTML file, which holds all it needs: the document that every form is, written out once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import numpy as np

from qkv.pictures.page import environment, page
from qkv.report.anatomy import Anatomy
from qkv.report.document import CandidateWords, Example, Patch, Report, RowPair, Verdict
from qkv.report.excerpt import Excerpt, excerpt_of
from qkv.report.figures import Figure, figure_of
from qkv.report.grids import Triple, text_of, triple
from qkv.report.highlighting import highlighted
from qkv.report.identity import Identity
from qkv.report.identity_form import STATES, in_short, state_of
from qkv.report.matrices import unlike
from qkv.report.places import TWO_DUMPS, number, place_of
from qkv.report.plain import visible
from qkv.report.worth import Worth, worth_of
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


@dataclass(frozen=True)
class View:
    """A report with what its page draws.

    Attributes:
        report: the report, with tricky characters made visible.
        id: begins the names of its sections: several reports may stand on one page.
        excerpt: the user's code around the line.
        figures: one for each fault.
        matrices: what is wrong first inside.
        by_hand: the same of the smallest example.
        worth: what the check is worth.
    """

    report: Report
    id: str
    excerpt: Excerpt | None
    figures: Sequence[tuple[Figure, Triple | None]]
    matrices: Sequence[Triple]
    by_hand: Sequence[Triple]
    worth: Worth


def to_html(reports: Sequence[Report]) -> str:
    """One page with a report, or with each of several behind an index."""
    views = [_view(report, f"r{place}") for place, report in enumerate(reports, 1)]
    if len(views) == 1:
        report = views[0].report
        return _page("report.html", _title(report), view=views[0])
    counts = Counter(view.report.verdict.value for view in views)
    said = ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in Verdict if counts[verdict.value])
    return _page("reports.html", f"{said} · qkv", views=views, said=said)


def anatomy_to_html(anatomy: Anatomy) -> str:
    """One page with somebody's code, what each line makes, and the report on it."""
    view, lines = _view(anatomy.report, "r1"), visible(list(anatomy.lines))
    code = list(zip(lines, highlighted([line.code for line in lines]), strict=True))
    return _page("anatomy.html", _title(view.report), view=view, code=code)


def identity_to_html(identity: Identity) -> str:
    """One page with which attention a black box computes."""
    identity = visible(identity)
    state = state_of(identity)
    mark, said, _ = STATES[state]
    title = f"{mark} {said} · {_name(identity.candidate)} · qkv"
    return _page(
        "identity.html", title, identity=identity, tone=TONES[state], mark=mark, said=said, held_to=in_short(identity),
        per_head=_per_head(identity),
    )  # fmt: skip


def _page(template: str, title: str, **parts: Any) -> str:
    helpers = {
        "array_text": _array_text, "common_name": _name, "dedented": _dedented, "describe": describe,
        "diff_lines": _diff_lines,
        "disagrees": _disagrees, "highlighted": highlighted, "marks": MARKS, "number": number, "place_of": place_of,
        "row_cells": _row_cells, "stages": [stage.value for stage in Stage], "tones": TONES, "two_dumps": TWO_DUMPS,
        "most_heads": MOST_HEADS, "most_queries": MOST_QUERIES, "size": _size,
    }  # fmt: skip
    return page(title, environment("qkv.report").get_template(template).render(**helpers, **parts))


def _view(report: Report, place: str) -> View:
    figures = [figure_of(fault) for fault in report.faults]
    drawn = [(figure, None if figure.matrices is None else triple(figure.matrices, ("right", "faulty")))
             for figure in figures]  # fmt: skip
    excerpt = visible(excerpt_of(report))
    shown: Report = visible(report)
    return View(
        shown, place, excerpt, drawn, [triple(one, shown.sides) for one in shown.matrices],
        [triple(one) for one in shown.by_hand], worth_of(shown),
    )  # fmt: skip


def _title(report: Report) -> str:
    faults = " and ".join(fault.id for fault in report.faults)
    parts = [f"{MARKS[report.verdict]} {report.verdict.value}", _name(report.candidate), faults, "qkv"]
    return " · ".join(part for part in parts if part)


def _name(candidate: CandidateWords) -> str:
    return candidate.name or candidate.file


# --- what templates ask for -------------------------------------------------------------------------------------------


def _row_cells(pair: RowPair) -> tuple[list[list[tuple[str, bool]]], int]:
    """The numbers of both rows, each with whether the two differ there; and how many are left out."""
    expected, got = (np.asarray(row, float) for row in (pair.expected, pair.got))
    off = unlike(expected, got)
    rows = [
        [(number(value), bool(differs)) for value, differs in zip(row, off, strict=True)] for row in (expected, got)
    ]
    return [row[:MOST_CHANNELS] for row in rows], max(len(expected) - MOST_CHANNELS, 0)


def _diff_lines(patch: Patch) -> list[tuple[str, str]]:
    """The lines of a diff, each with its sign: ``-``, ``+``, a space, or ``@`` before the number of a line."""
    lines = []
    for line in patch.diff.splitlines()[2:]:
        if line.startswith("@@"):
            lines.append(("@", f"line {line.split()[1].partition(',')[0][1:]} and on"))
        else:
            lines.append((line[:1] or " ", line[1:]))
    return lines


def _dedented(code: str) -> list[str]:
    return dedent(code).strip().splitlines()


def _array_text(example: Example) -> list[tuple[str, str]]:
    """The name and the numbers of each input of the smallest example."""
    return [(name, _numbers(np.asarray(array))) for name, array in example.tensors]


def _numbers(array: Any) -> str:
    shown = np.squeeze(array) if array.ndim > 2 else array
    formats: Any = {"bool": lambda value: "1" if value else "0"}
    return np.array2string(shown, precision=4, suppress_small=True, separator=" ", max_line_width=64, formatter=formats)


def _disagrees(report: Report) -> bool:
    """Whether the picture of wrong rows shows more than one row."""
    return len(report.wrong) > 1 or any(len(head) > 1 for head in report.wrong)


def _size(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("-", "\u2212")


def _per_head(identity: Identity) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the cells of each head: what heads have of their own."""
    names = list(dict.fromkeys(name for head in identity.per_head for name in head))
    return names, [[_cell(head.get(name)) for name in names] for head in identity.per_head]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return text_of(value, 4) if isinstance(value, float) else str(value)
