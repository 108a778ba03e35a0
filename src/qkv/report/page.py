"""Page: titled sections under a headline, as every answer in the terminal is laid out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qkv.report.document import CandidateWords
from qkv.report.plain import encodable

INDENT = 12
"""Columns in front of every line of a section: its title stands there."""

_TAIL = re.compile(r"(?:\x1b\[[0-9;]*m| )+$")
_PAINTED = re.compile(r".*\x1b\[[0-9;]*48;[0-9;]*m[^\x1b]*\x1b\[0m")
"""Up to the end of what stands on a colour."""


def page(headline: Text, sections: Iterable[tuple[str, RenderableType]], repeat: str, console: Console) -> str:
    """The page as the console's encoding, width and colours have it.

    Args:
        headline: the first line.
        sections: title and content of each section.
        repeat: the command that does it again, the last line; empty for none.
        console: what it is made for.
    """
    with console.capture() as captured:
        console.print(headline)
        for title, content in sections:
            console.print(_section(title, content))
        if repeat:
            console.print(Text.assemble(("  repeat    ", "bold"), repeat), soft_wrap=True)
    lines = map(_trimmed, captured.get().splitlines())
    return encodable("\n".join(lines) + "\n", console.encoding or "utf-8")


def _trimmed(line: str) -> str:
    """The line without the spaces at its end, but for those on a colour, which are a picture's cells."""
    painted = _PAINTED.match(line)
    end = painted.end() if painted else 0
    return line[:end] + _TAIL.sub(lambda tail: tail[0].replace(" ", ""), line[end:])


def _section(title: str, content: RenderableType) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=INDENT - 3, style="bold")
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(title, content)
    return Padding(grid, (0, 0, 1, 2))


def headline(mark: str, said: str, style: str, candidate: CandidateWords) -> Text:
    """The first line: the answer, and what it is about."""
    place = f"{candidate.file}:{candidate.line}" if candidate.file and candidate.line else candidate.file
    about = ", ".join(part for part in (candidate.kind, candidate.framework, candidate.dtype) if part)
    line = Text.assemble((f"{mark} {said}", style), "  ", (candidate.name or place, "bold"))
    if about:
        line.append(f"  {about}", "dim")
    if place and candidate.name:
        line.append(f"  {place}", "dim")
    return line
