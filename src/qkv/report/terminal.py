"""The report in the terminal: short enough for one screen, whole enough to act on."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from textwrap import dedent, wrap

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from qkv.adapters.endings import end_of
from qkv.pictures.heatmap import heat_map
from qkv.pictures.panels import Pictured
from qkv.report.changes import changed_places, diff_lines
from qkv.report.digits import MOST_NUMBERS, apart, left_out, numbers, row_texts, told_apart
from qkv.report.document import Example, NamedFault, Patch, Report, RowPair, SourceLine, Verdict
from qkv.report.page import INDENT, headline, page
from qkv.report.places import TWO_DUMPS, place_of
from qkv.report.plain import harmless
from qkv.report.worth import worth_of

STYLES = {
    Verdict.RIGHT: "bold green",
    Verdict.WRONG: "bold red",
    Verdict.UNDECIDED: "bold yellow",
    Verdict.FAILED: "bold magenta",
}
NARROWEST = 60
"""Columns; in fewer, rows of numbers and code could not be read."""

WIDE = 66
"""Columns from which on the table of probes says what each exposes."""

PRINTED = 400
"""Characters of what the candidate printed that are shown: its last lines."""

MOST_CHANNELS = 6
"""Numbers of a row that are printed side by side."""


def terminal() -> Console:
    """The console that stdout is: no narrower than a report can be, and without any escapes where NO_COLOR is set."""
    width = max(NARROWEST, shutil.get_terminal_size((80, 24)).columns)
    return Console(highlight=False, width=width, color_system=None if os.environ.get("NO_COLOR") else "auto")


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Prints the report. ``verbose`` adds what is wrong inside, every probe, and every fault that none could show."""
    text = report_text(report, console, verbose=verbose)
    console.file.write(text)
    console.file.flush()


def report_text(report: Report, console: Console, *, verbose: bool = False, inside: bool = False) -> str:
    """The report as the console's encoding, width and colours have it: see :func:`print_report`.

    What is wrong inside is drawn where ``inside`` or ``verbose`` asks for it.
    """
    report, room = harmless(report), console.width - INDENT
    wrong = [("inside", drawn(report.pictured(), console, room))] if (inside or verbose) and report.matrices else []
    sections = (*_findings(report, room), *wrong, *_grounds(report, room, verbose))
    return page(
        headline(report.verdict.mark, report.verdict.value, STYLES[report.verdict], report.candidate),
        sections,
        report.repeat,
        console,
    )


def as_text(report: Report, width: int = 100) -> str:
    """The report as plain text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False, force_terminal=False)
    print_report(report, console)
    return stream.getvalue()


def _findings(report: Report, room: int) -> Iterator[tuple[str, RenderableType]]:
    """What was found out, and where it shows."""
    if report.why:
        yield "why", Text(report.why)
    if report.detail:
        yield "", Text(report.detail.rstrip(), style="dim")
    if report.hint:
        yield "try", Text(report.hint, style="cyan")
    if report.first_disagreement is not None or (report.spread and report.verdict is Verdict.UNDECIDED):
        yield "where", _where(report, room)
    if report.only_when:
        yield "only when", Text(report.only_when, style="yellow")
    if report.line is not None:
        yield "line", _line(report.line, room)
    elif report.line_why:
        yield "line", Text(f"none can be named: {report.line_why}", style="dim")
    for place, fault in enumerate(report.faults):
        yield "fault" if place == 0 else "and", _fault(fault, room, mended=report.patch is not None)
    if report.patch is not None:
        yield "changed" if report.patch.applied else "change", _patch(report.patch, room)
    if report.alternatives:
        yield "or", _alternatives(report.alternatives)
    if report.example is not None:
        yield "by hand", _example(report.example, room)


def drawn(pictured: Pictured, console: Console, room: int) -> RenderableType:
    """Matrices as heat maps for the console, in so many columns, with what they are above them."""
    row, column = pictured.panels[0].axes
    said = [Text(pictured.aside)] if pictured.aside else []
    title = Text(f"{pictured.title}; {row} down, {column} across")
    return Group(title, heat_map(pictured.panels, console, room), *said)


def _grounds(report: Report, room: int, verbose: bool) -> Iterator[tuple[str, RenderableType]]:
    """What the verdict rests on: the spec, what was assumed, and the probes."""
    if report.held_to:
        yield "held to", Text(report.held_to)
    if report.assumptions:
        yield "assumed", Text("\n".join(report.assumptions), style="dim")
    if report.strength is not None or verbose:
        yield "checked", _strength(report, verbose)
    if verbose:
        yield "probes", _probes(report, room)
    if report.printed.strip():
        yield "printed", Text(end_of(report.printed.strip("\n").rstrip(), PRINTED), style="dim")


def _line(line: SourceLine, room: int) -> RenderableType:
    note = (Text(line.note, style="dim"),) if line.note else ()
    return Group(Text(f"{line.file}:{line.line}"), _python(line.code.strip().splitlines(), room), *note)


def _python(lines: Sequence[str], room: int) -> RenderableType:
    code = "\n".join(piece for line in lines for piece in _folded(line, room - 4))
    return Padding(Syntax(code, "python", background_color="default", theme="ansi_dark"), (0, 0, 0, 2))


FOLDED = 8
"""Columns by which the rest of a line of code that is too long stands further in, so as not to read as a line."""


def _folded(line: str, width: int) -> list[str]:
    """A line of code in pieces of this width."""
    inner = " " * (len(line) - len(line.lstrip()) + FOLDED)
    pieces = wrap(line, width, subsequent_indent=inner, expand_tabs=False, replace_whitespace=False,
                  break_on_hyphens=False)  # fmt: skip
    return pieces or [""]


def _where(report: Report, room: int) -> RenderableType:
    first = report.first_disagreement
    if first is None:
        return Text(report.spread)
    expected, got = report.sides
    right, made = apart(first.expected, first.got)
    probe = "" if report.candidate.kind == TWO_DUMPS else f"   (probe: {first.probe})"
    lines: list[RenderableType] = [
        Text.assemble(
            f"{place_of(report)}: {expected} ",
            (right, "green"),
            f", {got} ",
            (made, "red"),
            (probe, "dim"),
        ),
        Text(report.spread),
    ]
    inside = ([] if first.head is None else [f"head {first.head}"]) + (
        [] if first.key is None else [f"its weight on token {first.key}"]
    )
    if inside and first.tensor == "output" and probe:
        lines.append(Text(f"first wrong inside: {', '.join(inside)}"))
    lines += [_side_by_side(pair, report.sides, room) for pair in told_apart(report.rows)]
    if report.tells_rows:
        lines.append(_picture(report.wrong))
    return Group(*lines)


def _side_by_side(pair: RowPair, sides: tuple[str, str], room: int) -> RenderableType:
    rows = row_texts(pair, MOST_CHANNELS)
    width = 1 + max(map(len, (*rows.expected, *rows.got)))
    rows = row_texts(pair, max(1, min(MOST_CHANNELS, (room - 5 - max(map(len, sides))) // width)))
    table = Table.grid(padding=(0, 1))
    for name, row, style in zip(sides, (rows.expected, rows.got), ("green", "red"), strict=True):
        table.add_row(Text(name, style="dim"), *(Text(value, style=style, justify="right") for value in row),
                      Text("" if rows.start + len(row) == rows.of else "…", style="dim"))  # fmt: skip
    begins = f", from number {rows.start} on" if rows.start else ""
    return Group(Text(pair.title + begins, style="dim"), Padding(table, (0, 0, 0, 2)))


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


def _code(repair: str, room: int) -> list[str]:
    """The lines of the repair, each comment that would be cut off on a line of its own before its code."""
    lines = []
    for line in dedent(repair).strip().splitlines():
        code, mark, comment = line.partition("  # ")
        short = len(line) <= room or not mark or not code.strip()
        indent = line[: len(line) - len(line.lstrip())]
        lines += [line] if short else [f"{indent}# {comment}", code]
    return lines


def _patch(patch: Patch, room: int) -> RenderableType:
    """The lines that change, each place under its number; what stands around them is left out."""
    parts: list[RenderableType] = []
    for change in changed_places(diff_lines(patch)):
        parts.append(Text(f"{patch.file}:{change.number}"))
        for sign, style, lines in (("-", "red", change.removed), ("+", "green", change.added)):
            for line in lines:
                pieces = _folded("".join(text for _, text in line), room - 4)
                parts.append(Text(f"  {sign} " + "\n    ".join(pieces), style=style))
    words = f"which mends: {patch.mends}" if patch.applied else "with this it is found right; --fix writes it"
    return Group(*parts, Text(words, style="dim"))


def _fault(fault: NamedFault, room: int, *, mended: bool) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((fault.id, "bold red"), f"  {fault.title}", (f"  (stage: {fault.stage})", "dim"))
    ]
    if fault.note:
        parts.append(Text(fault.note, style="yellow"))
    parts.append(Text(fault.explanation))
    if mended:
        return Group(*parts)
    parts.append(Text("write instead:", style="dim"))
    parts.append(_python(_code(fault.repair, room - 4), room))
    return Group(*parts)


def _alternatives(faults: Sequence[NamedFault]) -> RenderableType:
    lines = [Text.assemble((fault.id, "yellow"), f"  {fault.title}") for fault in faults]
    return Group(*lines, Text("these would give the same numbers on every probe", style="dim"))


def _example(example: Example, room: int) -> RenderableType:
    named, _ = example.arrays(MOST_NUMBERS)
    names = max(10, *(len(name) for name, _ in named)) if named else 10
    arrays = Table.grid(padding=(0, 1))
    arrays.add_column(width=names, style="dim")
    arrays.add_column(overflow="fold")
    for name, array in named:
        arrays.add_row(name, Text(numbers(array, room - names - 1), {"expected": "green", "got": "red"}.get(name, "")))
    parts: list[RenderableType] = [Text(f"smallest input that shows it: {example.words}")]
    if example.held_to:
        parts.append(Text(f"held to {example.held_to}", style="dim"))
    missing = left_out(example)
    return Group(*parts, arrays, *([Text(missing, style="dim")] if missing else []))


def _strength(report: Report, verbose: bool) -> RenderableType:
    worth = worth_of(report)
    counted = worth.counted
    if worth.refused and not verbose:
        counted += f"; {len(worth.refused)} more could not be given (--verbose says why)"
    parts: list[RenderableType] = [Text(counted)]
    if verbose:
        parts += [Text(f"could not be called with {one.name}: {one.note}", style="yellow") for one in worth.refused]
    if worth.shown:
        parts.append(Text(worth.shown))
    if worth.missed:
        parts.append(Text(f"not shown: {', '.join(worth.missed)}", style="dim"))
    if verbose:
        parts += [Text(f"{reason}: {', '.join(faults)}", style="dim") for reason, faults in worth.absent.items()]
    elif worth.absent:
        elsewhere = sum(map(len, worth.absent.values()))
        told = f"{elsewhere} more can't be shown here: {', '.join(worth.absent)} (--verbose names them)"
        parts.append(Text(told, style="dim"))
    return Group(*parts)


def _probes(report: Report, room: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    columns = ("probe", "agrees", "largest error", "allowed", "exposes")[: 5 if room >= WIDE else 4]
    for column in columns:
        table.add_column(column, overflow="fold")
    for probe in report.probes:
        agrees = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("not run", "yellow")}[probe.agrees]
        cells = (probe.name, agrees, _size(probe.max_error), _size(probe.tolerance), probe.exposes)
        table.add_row(*cells[: len(columns)])
    return table


def _size(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"
