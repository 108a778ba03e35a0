"""A notebook's own text with some of its code changed: outputs, order and indentation stay as they are."""

from __future__ import annotations

import difflib
import json
import json.decoder
import json.scanner
from collections.abc import Iterator, Sequence
from typing import Any

from qkv.adapters.code_lines import code_lines
from qkv.adapters.notebooks import cell_of, code_cells, source_of_notebook


class _Located(str):
    """A string of a JSON text, and where it is written there, quotes included."""

    __slots__ = ("end", "start")

    start: int
    end: int


def notebook_with(text: str, source: str) -> str | None:
    """The notebook's text with its code changed to this source; None where that can't be written into it.

    Only the strings of the lines that change are written anew.

    Args:
        text: the ``.ipynb`` file.
        source: what `source_of_notebook` gives of it, changed within cells.
    """
    old, written, starts = source_of_notebook(text, "it")
    before, author, after = (code_lines(one, keepends=True) for one in (old, written, source))
    cells = [_source(cell) for cell in code_cells(_located(text))]
    edits: list[tuple[int, int, str]] = []
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for kind, start, end, to_start, to_end in blocks:
        if kind == "equal":
            continue
        number, line = cell_of(starts, start + 1)
        if before[start:end] != author[start:end] or cell_of(starts, max(end, 1))[0] > number:
            return None  # a line that only IPython reads, or one that stands in another cell
        edits += _anew(text, cells[number - 1], line - 1, line - 1 + end - start, after[to_start:to_end])
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _located(text: str) -> Any:
    """The JSON value of a text, its strings knowing where they stand."""
    decoder = json.JSONDecoder()

    def string(text: str, start: int, strict: bool = True) -> tuple[_Located, int]:
        value, end = json.decoder.scanstring(text, start, strict)  # type: ignore[attr-defined]
        found = _Located(value)
        found.start, found.end = start - 1, end
        return found, end

    decoder.parse_string = string  # type: ignore[attr-defined]
    # The scanner written in Python asks the decoder for its strings; the one written in C doesn't.
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(text)


def _source(cell: Any) -> Any:
    return cell["source"] if "source" in cell else cell["input"]


def _anew(text: str, source: Any, start: int, end: int, lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The edit of a notebook's text that puts other lines in the place of some of a cell's."""
    as_ascii = text.isascii() and "\\u" in text
    pieces: list[_Located] = source if isinstance(source, list) else [source]
    own = code_lines("".join(pieces), keepends=True)
    new = [*lines[:-1], lines[-1].rstrip("\n")] if lines and end == len(own) and not own[-1].endswith("\n") else lines
    if source is not pieces or pieces != own:
        changed = "".join([*own[:start], *new, *own[end:]])
        yield pieces[0].start, pieces[-1].end, json.dumps(changed, ensure_ascii=as_ascii)
        return
    indent = text[text.rindex("[", 0, pieces[0].start) + 1 : pieces[0].start]
    between = f",{indent or ' '}"
    strings = between.join(json.dumps(line, ensure_ascii=as_ascii) for line in new)
    if start == end:
        yield pieces[start].start, pieces[start].start, strings + between
    elif new:
        yield pieces[start].start, pieces[end - 1].end, strings
    elif end < len(pieces):
        yield pieces[start].start, pieces[end].start, ""
    else:
        yield pieces[start - 1].end if start else pieces[0].start, pieces[-1].end, ""
