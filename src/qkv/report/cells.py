"""Cells: a line of a notebook's joint source as the cell that it stands in, and the line there."""

from __future__ import annotations

from dataclasses import replace

from qkv.adapters.notebooks import cell_of
from qkv.adapters.targets import same_file
from qkv.adapters.texts import Text
from qkv.report.document import Report, SourceLine


def in_cells(report: Report, text: Text) -> Report:
    """The report on something in a notebook, with cells for lines of the joint source."""
    line = report.line
    if line is not None and same_file(line.file, text.path):
        until = None if line.until is None else source_line(text, line.until)
        line = replace(source_line(text, line.line), note=line.note, confirmed=line.confirmed)
        if until is not None and until.file == line.file:  # the other end may stand in another cell
            line = replace(line, until=until.line)
    return replace(report, candidate=replace(report.candidate, line=0), line=line)


def source_line(text: Text, line: int) -> SourceLine:
    """A line of a script or a notebook as the report names it."""
    code = text.lines[line - 1].strip()
    if not text.cells:
        return SourceLine(text.file, line, code)
    cell, within = cell_of(text.cells, line)
    return SourceLine(f"{text.file} cell {cell}", within, code)
