"""The repair of a plain script or a notebook: what its findings say to write, else small edits as of any candidate."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from qkv.adapters.messages import Hosting
from qkv.adapters.texts import Text, text_of
from qkv.errors import CandidateError
from qkv.repair.code import Change, Code, Edit
from qkv.repair.patches import mends
from qkv.repair.search import Suspicion, changes, repaired
from qkv.repair.source import Source
from qkv.report import Verdict
from qkv.report.anatomy import Anatomy
from qkv.scripts import Explained, Instead, explained

BY_NAME = frozenset({"other-token", "stale-variable", "compared-with-other-token", "values-in-another-order"})
"""Slips that are told by names and orders alone: any edit that hides these would do."""


def explained_and_mended(
    text: Text, host: Hosting, repeat: str, seconds: float, advance: Callable[[float], None] = lambda share: None
) -> Anatomy:
    """A script's lines with what each makes, and the verdict on it; where it is wrong, with a repair of its file.

    Args:
        text: the script.
        host: who runs it.
        repeat: the command that does it again.
        seconds: how long to look for a repair; 0 for none.
        advance: is told the share of that time that has passed since it was told last.
    """
    found = explained(text, host, repeat)
    report = found.report
    if seconds <= 0 or report.line is None or report.verdict not in (Verdict.WRONG, Verdict.FAILED):
        return found
    try:
        source = Source.of(text.file)
        now = text_of(text.file, source.data)
    except (OSError, SyntaxError, ValueError, CandidateError):
        return found
    if now.source != text.source:
        return found  # it was saved again meanwhile

    def is_right(edited: bytes) -> bool:
        return _is_right(explained(text_of(text.file, edited), host, ""), found)

    faults = [fault.id for fault in report.faults] or ["transpose-forgotten"]
    likely = chain(
        _instead(source.code, found.instead),
        () if BY_NAME & set(faults) else changes(source.code, Suspicion("", faults, found.line)),
    )
    edited = repaired(source.code, likely, source.told(is_right), seconds, advance)
    if edited is None:
        return found
    return replace(found, report=replace(report, patch=source.patch(edited, mends(report))))


def _is_right(again: Explained, before: Explained) -> bool:
    """Whether a script is right once it is edited, without more being assumed, and still makes all that it made."""
    if again.assumed - before.assumed or again.masked < before.masked:
        return False
    makes_all = again.contexts >= before.contexts and not again.lacks(before)
    return again.report.verdict is Verdict.RIGHT and makes_all


def _instead(code: Code, instead: Sequence[Instead]) -> Iterator[Change]:
    """What the findings say to write: all of it, then each by itself."""
    single = [change for one in instead if (change := _change(code, one)) is not None]
    if len(single) > 1:
        yield Change(tuple(dict.fromkeys(edit for change in single for edit in change.edits)), "all")
    yield from single


def _change(code: Code, instead: Instead) -> Change | None:
    """The change that writes one expression in the place of another, and a statement in front of its own."""
    place = instead.place
    span = code.offset(place.line, place.column), code.offset(place.end_line, place.end_column)
    nodes = [node for node in ast.walk(code.tree) if isinstance(node, ast.expr | ast.stmt) and code.span(node) == span]
    if not nodes:
        return None
    statement = code.statement_of(nodes[0])
    indent = None if statement is None else code.indent_of(statement)
    line_break = f"{code.newline}{indent}"
    whole = isinstance(nodes[0], ast.stmt)
    edits = [Edit(*span, instead.code.replace("\n", line_break)) if whole else code.edit(nodes[0], instead.code)]
    if instead.before and statement is not None and indent is not None:
        start, before = code.span(statement)[0], instead.before.replace("\n", line_break)
        edits.insert(0, Edit(start, start, f"{before}{line_break}"))
    return Change(tuple(edits), "instead")
