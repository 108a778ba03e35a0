"""The report in the terminal: short enough for one screen, whole enough to act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from qkv.report.document import Example, NamedFault, Report, Verdict
from qkv.spec import describe

MARKS = {
    Verdict.RIGHT: ("✓", "bold green"),
    Verdict.WRONG: ("✗", "bold red"),
    Verdict.UNDECIDED: ("?", "bold yellow"),
    Verdict.FAILED: ("!", "bold magenta"),
}
MOST_CHANNELS = 6
"""Numbers of a row that are printed side by side."""

MOST_BLIND = 3
"""Reasons for blindness that are printed with their faults; the JSON form has them all."""


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Prints the report. ``verbose`` adds every probe, and every fault that the probes could not show."""
    console.print(_headline(report, console))
    for title, content in (*_findings(report), *_grounds(report, verbose)):
        console.print(_section(title, content))
    if report.repeat:
        console.print(Text.assemble(("  repeat    ", "bold"), report.repeat), soft_wrap=True)


def _headline(report: Report, console: Console) -> Text:
    mark, style = MARKS[report.verdict]
    if not _can_print(mark, console):
        mark = {"✓": "ok", "✗": "x"}.get(mark, mark)
    candidate = report.candidate
    place = f"{candidate.file}:{candidate.line}" if candidate.file and candidate.line else candidate.file
    about = ", ".join(part for part in (candidate.kind, candidate.framework, candidate.dtype) if part)
    line = Text.assemble((f"{mark} {report.verdict.value}", style), "  ", (candidate.name or place, "bold"))
    if about:
        line.append(f"  {about}", "dim")
    if place and candidate.name:
        line.append(f"  {place}", "dim")
    return line


def _can_print(text: str, console: Console) -> bool:
    try:
        text.encode(console.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _section(title: str, content: RenderableType) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=9, style="bold")
    grid.add_column(ratio=1)
    grid.add_row(title, content)
    return Padding(grid, (0, 0, 1, 2))


def _findings(report: Report) -> Iterator[tuple[str, RenderableType]]:
    """What was found out, and where it shows."""
    if report.why:
        yield "why", Text(report.why)
    if report.detail:
        yield "", Text(report.detail.rstrip(), style="dim")
    if report.hint:
        yield "try", Text(report.hint, style="cyan")
    if report.first_disagreement is not None:
        yield "where", _where(report)
    for place, fault in enumerate(report.faults):
        yield "fault" if place == 0 else "and", _fault(fault)
    if report.alternatives:
        yield "or", _alternatives(report.alternatives)
    if report.example is not None:
        yield "by hand", _example(report.example)


def _grounds(report: Report, verbose: bool) -> Iterator[tuple[str, RenderableType]]:
    """What the verdict rests on: the spec, what was assumed, and the probes."""
    if report.spec is not None:
        yield "held to", Text(describe(report.spec))
    if report.assumptions:
        yield "assumed", Text("\n".join(report.assumptions), style="dim")
    if report.strength is not None or verbose:
        yield "checked", _strength(report, verbose)
    if verbose:
        yield "probes", _probes(report)
    if report.printed.strip():
        yield "printed", Text(report.printed.strip()[-400:], style="dim")


def _where(report: Report) -> RenderableType:
    first = report.first_disagreement
    assert first is not None
    places = [f"sequence {first.batch}"] + ([] if first.head is None else [f"head {first.head}"])
    places += [f"token {first.query}"] + ([] if first.key is None else [f"weight on token {first.key}"])
    places += [f"channel {first.channel}"]
    lines: list[RenderableType] = [
        Text.assemble(
            f"first at {', '.join(places)}: expected ",
            (number(first.expected), "green"),
            ", got ",
            (number(first.got), "red"),
            (f"   (probe: {first.probe})", "dim"),
        ),
        Text(report.spread),
    ]
    lines += [_side_by_side(pair.title, pair.expected, pair.got) for pair in report.rows]
    if len(report.wrong) > 1 or any(len(head) > 1 for head in report.wrong):
        lines.append(_picture(report.wrong))
    return Group(*lines)


def _side_by_side(title: str, expected: Sequence[float], got: Sequence[float]) -> RenderableType:
    more = len(expected) > MOST_CHANNELS
    table = Table.grid(padding=(0, 1))
    for name, row, style in (("expected", expected, "green"), ("got", got, "red")):
        shown = [number(value) for value in row[:MOST_CHANNELS]]
        table.add_row(Text(name, style="dim"), *(Text(value, style=style, justify="right") for value in shown),
                      Text("…" if more else "", style="dim"))  # fmt: skip
    return Group(Text(title, style="dim"), Padding(table, (0, 0, 0, 2)))


def _picture(wrong: Sequence[Sequence[bool]]) -> RenderableType:
    """One line a head, one mark a query: which rows are wrong."""
    table = Table.grid(padding=(0, 1))
    for head, rows in enumerate(wrong[:16]):
        marks = Text()
        for row in rows[:64]:
            marks.append("x" if row else ".", "red" if row else "green")
        name = f"head {head}" if len(wrong) > 1 else "rows"
        table.add_row(Text(name, style="dim"), marks)
    legend = Text("x wrong  . right, one column a token", style="dim")
    return Group(table, legend)


def _fault(fault: NamedFault) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((fault.id, "bold red"), f"  {fault.title}", (f"  (stage: {fault.stage})", "dim"))
    ]
    if fault.note:
        parts.append(Text(fault.note, style="yellow"))
    parts.append(Text(fault.explanation))
    parts.append(Text("write instead:", style="dim"))
    code = Syntax(dedent(fault.repair).strip(), "python", background_color="default", theme="ansi_dark", word_wrap=True)
    parts.append(Padding(code, (0, 0, 0, 2)))
    return Group(*parts)


def _alternatives(faults: Sequence[NamedFault]) -> RenderableType:
    lines = [Text.assemble((fault.id, "yellow"), f"  {fault.title}") for fault in faults]
    return Group(*lines, Text("give the same numbers on every probe", style="dim"))


def _example(example: Example) -> RenderableType:
    parts: list[RenderableType] = [Text(f"smallest input that shows it: {example.words}")]
    parts += [_array(name, array) for name, array in example.tensors]
    if np.size(example.expected) <= 60:
        parts += [_array("expected", example.expected, "green"), _array("got", example.got, "red")]
    return Group(*parts)


def _array(name: str, array: Any, style: str = "") -> RenderableType:
    values = np.asarray(array)
    text = np.array2string(
        np.squeeze(values) if values.ndim > 2 else values,
        precision=4,
        suppress_small=True,
        separator=" ",
        max_line_width=90,
        formatter={"bool": lambda value: "1" if value else "0"},
    )
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=10, style="dim")
    grid.add_row(name, Text(text, style=style, no_wrap=True))
    return grid


def _strength(report: Report, verbose: bool) -> RenderableType:
    agreed = sum(probe.agrees is True for probe in report.probes)
    parts: list[RenderableType] = [Text(f"{agreed} of {len(report.probes)} probes agree")]
    refused = [probe for probe in report.probes if probe.agrees is None]
    parts += [Text(f"could not be called with {probe.name}: {probe.note}", style="yellow") for probe in refused]
    strength = report.strength
    if strength is None:
        return Group(*parts)
    parts.append(Text(f"these probes would have shown {strength.would_catch} of {strength.of} known faults"))
    reasons: dict[str, list[str]] = {}
    for entry in strength.blind_to:
        fault, _, reason = entry.partition(": ")
        reasons.setdefault(reason, []).append(fault)
    for reason, faults in reasons.items():
        shown = faults if verbose else faults[:MOST_BLIND]
        more = f" and {len(faults) - len(shown)} more" if len(faults) > len(shown) else ""
        parts.append(Text(f"blind ({reason}): {', '.join(shown)}{more}", style="dim"))
    return Group(*parts)


def _probes(report: Report) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("probe", "agrees", "largest error", "allowed", "exposes"):
        table.add_column(column, overflow="fold")
    for probe in report.probes:
        agrees = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("not run", "yellow")}[probe.agrees]
        table.add_row(probe.name, agrees, _size(probe.max_error), _size(probe.tolerance), probe.exposes)
    return table


def _size(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def number(value: float) -> str:
    """A number with four decimals, or in powers of ten where that hides it."""
    if value == 0 or not np.isfinite(value) or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}"
    return f"{value:.3e}"
