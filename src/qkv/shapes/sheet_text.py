"""A sheet of shapes as plain text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from qkv.shapes.boxes import boxes_text, of_pairs
from qkv.shapes.sheet import Line, Sheet
from qkv.shapes.table import columns_text

SCHEMA = 1
"""Counts changes of the JSON form that break a reader."""

LONGEST = 52
"""Characters of an expression in the table."""

INDENT = 10
"""Blanks before a product."""

HEADER = ("line", "expression", "makes", "shape in names", "in numbers")


def sheet_text(sheet: Sheet) -> str:
    """The table of a sheet, and beneath it the rules and warnings."""
    where = f"  {sheet.file}" + (f":{sheet.line}" if sheet.line else "") if sheet.file else ""
    sections = [
        [f"{sheet.name}{where}".strip(), *_sizes(sheet)],
        _table(sheet) if sheet.lines else [],
        _drawn(sheet),
        [
            f"cannot be run: {sheet.why}",
            *(f"  {line}" for line in sheet.detail.splitlines()),
            *_given("try", sheet.hint),
        ]
        if sheet.why
        else [],
        [f"rule     {rule.says}\n           {rule.seen}" for rule in sheet.rules],
        [f"free     {free}" for free in sheet.free],
        [f"warning  {warning}" for warning in sheet.warnings],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def _given(label: str, text: str) -> list[str]:
    return [f"  {label}: {text}"] if text else []


def _sizes(sheet: Sheet) -> list[str]:
    if not sheet.sizes:
        return []
    said = [f"{name} {size}" for name, size in sheet.sizes.items()]
    said += [f"{name} = {other}" for name, other in sheet.equal.items()]
    return [f"tried with {', '.join(said)}"]


def _table(sheet: Sheet) -> list[str]:
    """The table, each product in a line of its own beneath what it makes."""
    header, rule, *rows = columns_text(HEADER, [_row(line, sheet) for line in sheet.lines]).splitlines()
    said = [header, rule]
    for row, line in zip(rows, sheet.lines, strict=True):
        said += [row, *(f"{' ' * INDENT}{one.names}, {one.numbers}{_times(line)}" for one in line.products)]
    return said


def _drawn(sheet: Sheet) -> list[str]:
    """The products of queries and keys, each beneath the line that makes it."""
    products = [
        (f"{_where(line, sheet)}  {_code(line)}{_times(line)}", one) for line in sheet.lines for one in line.products
    ]
    return boxes_text(of_pairs(products)).splitlines()


def _times(line: Line) -> str:
    return f", {line.times} times" if line.times > 1 else ""


def _row(line: Line, sheet: Sheet) -> tuple[str, ...]:
    return _where(line, sheet), _code(line), line.makes, line.shape.names, line.shape.numbers


def _where(line: Line, sheet: Sheet) -> str:
    files = {one.file for one in sheet.lines}
    return str(line.line) if len(files) == 1 else f"{line.file}:{line.line}"


def _code(line: Line) -> str:
    return line.code if len(line.code) <= LONGEST else f"{line.code[: LONGEST - 1]}…"


def sheet_to_json(sheet: Sheet) -> str:
    """The sheet as JSON, with ``schema``, ``candidate``, ``sizes``, ``lines``, ``rules``, ``warnings`` and ``why``."""
    form: dict[str, Any] = {
        "schema": SCHEMA,
        "candidate": {"name": sheet.name, "file": sheet.file, "line": sheet.line},
        "sizes": dict(sheet.sizes),
        "equal": dict(sheet.equal),
        "lines": [_line_form(line) for line in sheet.lines],
        "rules": [{"says": rule.says, "seen": rule.seen} for rule in sheet.rules],
        "free": list(sheet.free),
        "warnings": list(sheet.warnings),
        "why": sheet.why,
        "hint": sheet.hint,
        "detail": sheet.detail,
    }
    return json.dumps(form, indent=2)


def _line_form(line: Line) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.line,
        "code": line.code,
        "makes": line.makes,
        "axes": list(line.shape.axes),
        "shape": list(line.shape.sizes),
        "products": [{"names": one.names, "numbers": one.numbers} for one in line.products],
        "times": line.times,
    }
