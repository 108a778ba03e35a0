"""The anatomy in the terminal: the code, beneath or beside each line what it makes, and then the report."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from qkv.report.anatomy import Anatomy, CodeLine, Made
from qkv.report.document import Verdict
from qkv.report.plain import encodable, harmless
from qkv.report.terminal import report_text

BESIDE = 130
"""Columns from which on there is room for the notes beside the code."""

MARGIN = 8
"""Columns at most that the lines' numbers, the marks and the gaps take."""

UNSEEN = "its lines are not shown: what it makes could not be watched while it ran"
"""What is said of compiled code."""

_MARKS = {"right": ("✓", "green"), "wrong": ("✗", "bold red"), "": ("", "")}


def anatomy_text(anatomy: Anatomy, console: Console, *, verbose: bool = False) -> str:
    """The anatomy as the console's encoding, width and colours have it, with a picture of what is wrong inside."""
    report = report_text(anatomy.report, console, verbose=verbose, inside=True)
    if not anatomy.lines:
        return report if anatomy.report.verdict is Verdict.FAILED else f"{UNSEEN}\n\n{report}"
    shown: Anatomy = harmless(anatomy)
    table = (_beside if console.width >= BESIDE else _beneath)(shown, console.width)
    with console.capture() as captured:
        console.print(table)
    code = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return encodable(code + "\n\n", console.encoding or "utf-8") + report


def _beside(anatomy: Anatomy, console_width: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(ratio=5, overflow="fold")
    table.add_column(width=1)
    table.add_column(ratio=6, overflow="fold")
    width = (console_width - MARGIN) * 6 // 11
    for line, before in _with_last(anatomy):
        if line.where != before:
            table.add_row("", Text(line.where, "bold"))
        mark, style = _MARKS[line.mark]
        table.add_row(str(line.line), Text(line.code), Text(mark, style), _notes(line, width))
    return table


def _beneath(anatomy: Anatomy, console_width: int) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for line, before in _with_last(anatomy):
        if line.where != before:
            table.add_row("", Text(line.where, "bold"))
        table.add_row(str(line.line), Text(line.code))
        mark, style = _MARKS[line.mark]
        notes = _notes(line, console_width - MARGIN)
        if notes.plain:
            table.add_row(Text(mark, style), notes)
    return table


def _with_last(anatomy: Anatomy) -> list[tuple[CodeLine, str]]:
    """Each line with the cell or file of the line before it."""
    return list(zip(anatomy.lines, ["", *(line.where for line in anatomy.lines)], strict=False))


def _notes(line: CodeLine, width: int) -> Text:
    said = [Text(line.note, "red")] if line.note else []
    return Text("\n").join([*(_made(made, width) for made in line.makes), *said])


def _made(made: Made, width: int) -> Text:
    """What is made, and beneath it the product that makes it, its numbers in a line of their own where it is long."""
    text = Text(str(made), "cyan")
    if made.product:
        together = f"  {made.product}   {made.numbers}"
        text.append(f"\n{together}" if len(together) <= width else f"\n  {made.product}\n  {made.numbers}", "dim")
    return text
