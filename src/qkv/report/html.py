"""The report as one HTML file, which holds all it needs: the document that every form is, written out once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qkv.pictures.page import environment, page
from qkv.report.anatomy import Anatomy
from qkv.report.changes import DiffLine, diff_lines
from qkv.report.document import WORST_FIRST, Report
from qkv.report.excerpt import Excerpt, excerpt_of
from qkv.report.figures import Figure, figure_of
from qkv.report.grids import Triple, text_of, triple
from qkv.report.helpers import HELPERS, TONES, common_name
from qkv.report.highlighting import highlighted
from qkv.report.identity import Identity
from qkv.report.identity_form import STATES, in_short, state_of
from qkv.report.plain import visible
from qkv.report.seen import seen_of
from qkv.report.worth import Worth, worth_of


@dataclass(frozen=True)
class View:
    """A report with what its page draws.

    Attributes:
        report: the report, with tricky characters made visible.
        id: begins the names of its sections: several reports may stand on one page.
        excerpt: the user's code around the line.
        figures: one for each fault.
        matrices: what is wrong first inside.
        by_hand: the same of the smallest example, as far as it is small.
        worth: what the check is worth.
        diff: the lines of the repair, and those around them.
    """

    report: Report
    id: str
    excerpt: Excerpt | None
    figures: Sequence[tuple[Figure, Triple | None]]
    matrices: Sequence[Triple]
    by_hand: Sequence[Triple]
    worth: Worth
    diff: Sequence[DiffLine]


def to_html(reports: Sequence[Report]) -> str:
    """One page with a report, or with each of several behind an index."""
    views = [_view(report, f"r{place}") for place, report in enumerate(reports, 1)]
    if len(views) == 1:
        report = views[0].report
        return _page("report.html", _title(report), view=views[0])
    counts = Counter(view.report.verdict for view in views)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])
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
    title = f"{mark} {said} · {common_name(identity.candidate)} · qkv"
    return _page(
        "identity.html", title, identity=identity, tone=TONES[state], mark=mark, said=said, held_to=in_short(identity),
        per_head=_per_head(identity), seen=seen_of(identity),
    )  # fmt: skip


def _page(template: str, title: str, **parts: Any) -> str:
    return page(title, environment("qkv.report").get_template(template).render(**HELPERS, **parts), "report")


def _view(report: Report, place: str) -> View:
    shown: Report = visible(report)
    return View(
        report=shown,
        id=place,
        excerpt=visible(excerpt_of(report)),
        figures=[(figure, _drawn(figure)) for figure in (figure_of(fault, report.spec) for fault in report.faults)],
        matrices=[triple(one, shown.sides) for one in shown.matrices],
        by_hand=[drawn for one in shown.by_hand if not (drawn := triple(one)).cut],
        worth=worth_of(shown),
        diff=visible(diff_lines(report.patch) if report.patch else []),
    )


def _drawn(figure: Figure) -> Triple | None:
    return None if figure.matrices is None else triple(figure.matrices, ("right", "faulty"))


def _title(report: Report) -> str:
    faults = " and ".join(fault.id for fault in report.faults)
    parts = [f"{report.verdict.mark} {report.verdict.value}", common_name(report.candidate), faults, "qkv"]
    return " · ".join(part for part in parts if part)


def _per_head(identity: Identity) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the cells of each head: what heads have of their own."""
    names = list(dict.fromkeys(name for head in identity.per_head for name in head))
    return names, [[_cell(head.get(name)) for name in names] for head in identity.per_head]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return text_of(value, 4) if isinstance(value, float) else str(value)
