"""Excerpt: the user's code around the line that makes the wrong numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.adapters.code_lines import code_lines
from qkv.adapters.texts import decoded, is_notebook, text_of
from qkv.errors import CandidateError
from qkv.report.cells import source_line
from qkv.report.document import Report, SourceLine

AROUND = 6
"""Lines that are shown before and after it."""


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file.

    Attributes:
        file: the file, or the cell of a notebook.
        start: number of the first line.
        lines: the lines as they are written.
        line: number of the line that the report is about.
        other: number of the other end, where the change may be made on either or between; None for none.
    """

    file: str
    start: int
    lines: Sequence[str]
    line: int
    other: int | None = None


def excerpt_of(report: Report) -> Excerpt | None:
    """The line of a report and what stands around it; the line alone where its file can't be read; None without one."""
    line = report.line
    if line is None:
        return None
    first, last = sorted((line.line, line.until or line.line))
    code = dict(_code_of(line, report))
    if line.line not in code:
        return Excerpt(line.file, line.line, [line.code], line.line)
    numbers = [number for number in sorted(code) if first - AROUND <= number <= last + AROUND]
    return Excerpt(line.file, numbers[0], [code[number] for number in numbers], line.line, line.until)


def _code_of(line: SourceLine, report: Report) -> Iterator[tuple[int, str]]:
    """Number and code of each line of the file, or of the cell of a notebook, that a line stands in."""
    try:
        if not is_notebook(report.candidate.file):
            yield from enumerate(code_lines(decoded(Path(line.file).read_bytes())), 1)
            return
        text = text_of(report.candidate.file)
    except (CandidateError, OSError, SyntaxError, ValueError):
        return
    for number, code in enumerate(text.lines, 1):
        here = source_line(text, number)
        if here.file == line.file:
            yield here.line, code
