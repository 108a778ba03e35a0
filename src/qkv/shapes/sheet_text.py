"""A sheet of shapes as plain text and as JSON."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

from qkv.shapes.boxes import boxes_text, of_pairs
from qkv.shapes.product import Product
from qkv.shapes.sheet import Line, Sheet
from qkv.shapes.table import columns_text

SCHEMA = 1
"""Counts changes of the JSON form that break a reader."""

LONGEST, SHORTEST = 52, 10
"""Characters of an expression in the table: at most, and however narrow it is."""

UNSEEN = "no line of it is shown: what it makes could not be watched while it ran"
"""What is said of compiled code."""

INDENT = 10
"""Blanks before a product."""

HEADER = ("line", "expression", "makes", "shape in names", "in numbers")


def sheet_text(sheet: Sheet, width: int = 100) -> str:
    """The table of a sheet, and beneath it the rules and warnings, in so many columns."""
    where = f"  {sheet.file}" + (f":{sheet.line}" if sheet.line else "") if sheet.file else ""
    sections = [
        [f"{sheet.name}{where}".strip(), *_sizes(sheet, width)],
        _table(sheet, width) if sheet.lines else [UNSEEN] * (not sheet.why),
        _drawn(sheet),
        [
            *_folded("cannot be run: ", sheet.why, width),
            *(f"  {line}" for line in sheet.detail.splitlines()),
            *_folded("  try: ", sheet.hint, width),
        ]
        if sheet.why
        else [],
        [line for rule in sheet.rules for part in (("rule     ", rule.says), (" " * 11, rule.seen))
         for line in _folded(*part, width)],
        [line for free in sheet.free for line in _folded("free     ", free, width)],
        [line for warning in sheet.warnings for line in _folded("warning  ", warning, width)],
    ]  # fmt: skip
    return "\n\n".join("\n".join(section) for section in sections if section)


def _folded(label: str, text: str, width: int) -> list[str]:
    """The text after its label, in lines that go on beneath its beginning; lines of its own stay such."""
    blank = " " * len(label)
    return [
        part
        for place, line in enumerate(text.splitlines())
        for part in wrap(line, width, initial_indent=blank if place else label, subsequent_indent=blank,
                         break_on_hyphens=False)
    ]  # fmt: skip


def _sizes(sheet: Sheet, width: int) -> list[str]:
    if not sheet.sizes:
        return []
    said = [f"{name} {size}" for name, size in sheet.sizes.items()]
    said += [f"{name} = {other}" for name, other in sheet.equal.items()]
    return _folded("tried with ", ", ".join(said), width)


def _table(sheet: Sheet, width: int) -> list[str]:
    """The table, each product beneath what it makes; expressions are cut to where it has the width."""
    wide = len(_columns(sheet, LONGEST)[1])
    longest = max(len(_code(line, LONGEST)) for line in sheet.lines)
    header, rule, *rows = _columns(sheet, max(SHORTEST, longest - max(0, wide - width)))
    said = [header, rule]
    for row, line in zip(rows, sheet.lines, strict=True):
        said += [row, *(piece for one in line.products for piece in _product(one, _times(line), width))]
    return said


def _product(product: Product, often: str, width: int) -> list[str]:
    """The product in a line, or with its numbers beneath its names where these have no room beside them."""
    blank, names, numbers = " " * INDENT, f"{product.names},", f"{product.numbers}{often}"
    together = f"{blank}{names} {numbers}"
    return [together] if len(together) <= width else [*_folded(blank, names, width), *_folded(blank, numbers, width)]


def _columns(sheet: Sheet, longest: int) -> list[str]:
    """Header, rule and rows, with expressions of so many characters at most."""
    rows = [(_where(line, sheet), _code(line, longest), line.makes, line.shape.names, line.shape.numbers)
            for line in sheet.lines]  # fmt: skip
    return columns_text(HEADER, rows).splitlines()


def _drawn(sheet: Sheet) -> list[str]:
    """The products of queries and keys, each beneath the line that makes it."""
    products = [
        (f"{_where(line, sheet)}  {_code(line, LONGEST)}{_times(line)}", one)
        for line in sheet.lines
        for one in line.products
    ]
    return boxes_text(of_pairs(products)).splitlines()


def _times(line: Line) -> str:
    return f", {line.times} times" if line.times > 1 else ""


def _where(line: Line, sheet: Sheet) -> str:
    files = {one.file for one in sheet.lines}
    return str(line.line) if len(files) == 1 else f"{line.file}:{line.line}"


def _code(line: Line, longest: int) -> str:
    return line.code if len(line.code) <= longest else f"{line.code[: longest - 1]}…"


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
