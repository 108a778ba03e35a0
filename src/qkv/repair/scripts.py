"""The repair of a plain script or a notebook: what its findings say to write, else small edits as of any candidate."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from qkv.adapters.messages import Hosting
from qkv.adapters.texts import Text, text_of
from qkv.errors import CandidateError
from qkv.repair.code import Change, Code, Edit
from qkv.repair.patches import mends
from qkv.repair.rules import BY_INDEX
from qkv.repair.search import Suspicion, changes, repaired
from qkv.repair.shown_line import line_shown_by
from qkv.repair.source import Source
from qkv.report import NamedFault, Patch, Report, Verdict
from qkv.report.anatomy import Anatomy, CodeLine
from qkv.report.cells import source_line
from qkv.scripts import Explained, Instead, explained
from qkv.scripts.slips import slip_of

BY_NAME = frozenset(
    {"other-token", "stale-variable", "compared-with-other-token", "values-in-another-order", "value-after-rope",
     "rope-one-sided"}
)  # fmt: skip
"""Slips that are told by names, orders and lengths alone: any edit that hides these would do, but one of an index."""

MASKLESS = frozenset({"mask-not-applied", "causal-missing"})
"""Slips that leave some context vectors without a mask: a mask that is read for anything else would hide these too."""

OTHER_INDEX = slip_of("other-index")


def explained_and_mended(
    text: Text, host: Hosting, repeat: str, seconds: float, advance: Callable[[float], None] = lambda share: None
) -> Anatomy:
    """A script's lines with what each makes, and the verdict on it; where it is wrong, with a repair of its file.

    One that is no attention that is known, and is right with another index in one of its loops, is wrong there.

    Args:
        text: the script.
        host: who runs it.
        repeat: the command that does it again.
        seconds: how long to look for a repair; 0 for none.
        advance: is told the share of that time that has passed since it was told last.
    """
    found = explained(text, host, repeat)
    source = None if seconds <= 0 or found.report.verdict is Verdict.RIGHT else _source(text)
    if source is None:
        return found
    code, suspicion = source.code, Suspicion("", [fault.id for fault in found.report.faults], found.line)

    def is_right(edited: bytes) -> bool:
        return _is_right(explained(text_of(text.file, edited), host, ""), found)

    def first_right(likely: Iterable[Change]) -> bytes | None:
        return repaired(code, likely, source.told(is_right), seconds, advance)

    if found.report.line is None and (edited := first_right(changes(code, suspicion, BY_INDEX))) is not None:
        return _by_index(text, found, source.patch(edited, f"{OTHER_INDEX.id}: {OTHER_INDEX.title}"))
    if found.report.verdict is Verdict.UNDECIDED or (edited := first_right(_likely(code, found, suspicion))) is None:
        return found
    return replace(found, report=replace(found.report, patch=source.patch(edited, mends(found.report))))


def _source(text: Text) -> Source | None:
    """The script's file as it is edited; None where it can't be, or was saved again meanwhile."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, CandidateError):
        source = Source.of(text.file)
        return source if text_of(text.file, source.data).source == text.source else None
    return None


def _likely(code: Code, found: Explained, suspicion: Suspicion) -> Iterator[Change]:
    """What the findings say to write, then small edits."""
    yield from _instead(code, found.instead)
    by_name = BY_NAME & set(suspicion.faults)
    if by_name or not suspicion.faults:
        yield from changes(code, suspicion, BY_INDEX)
    if not by_name:
        yield from changes(code, replace(suspicion, faults=suspicion.faults or ["transpose-forgotten"]))


def _by_index(text: Text, found: Explained, patch: Patch) -> Anatomy:
    """A script in which nothing was known to be wrong but by its numbers, with the index that makes it right."""
    shown = line_shown_by(patch, None)
    line = None if shown is None else replace(source_line(text, shown.line), note=shown.note)
    before, after = patch.before.strip(), patch.after.strip()
    said = f"with `{after}` in the place of `{before}` the whole script is a right attention; as it stands it is none"
    fault = NamedFault(OTHER_INDEX.id, OTHER_INDEX.stage, OTHER_INDEX.title, f"{said}.", after, "", 0.0)
    report = replace(
        found.report, verdict=Verdict.WRONG, why="", hint="", faults=[fault], line=line, line_why="", patch=patch
    )
    marked = [replace(one, mark="wrong", note=said) if _is(one, report) else one for one in found.lines]
    return replace(found, report=report, lines=marked)


def _is(line: CodeLine, report: Report) -> bool:
    """Whether a line is the one that a report names."""
    at = report.line
    where = f" cell {line.cell}" if line.cell else ""
    return at is not None and at.line == line.line and at.file.endswith(where)


def _is_right(again: Explained, before: Explained) -> bool:
    """Whether a script is right once it is edited, without more being assumed, and still makes all that it made."""
    faults = {fault.id for fault in before.report.faults}
    turned = {one.place.target for one in before.instead} if "value-after-rope" in faults else set()
    unmasked = not MASKLESS.isdisjoint(faults)
    if again.assumed - before.assumed or again.masked < before.masked + unmasked:
        return False
    makes_all = (
        again.contexts >= before.contexts and again.projected >= before.projected and not again.lacks(before, turned)
    )
    return again.report.verdict is Verdict.RIGHT and makes_all


def _instead(code: Code, instead: Sequence[Instead]) -> Iterator[Change]:
    """What the findings say to write: the first, since others may follow from it, then all of it, then each other."""
    single = [change for one in instead if (change := _change(code, one)) is not None]
    yield from single[:1]
    yield Change(tuple(dict.fromkeys(edit for change in single for edit in change.edits)), "all")
    yield from single[1:]


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
    if isinstance(statement, ast.Assign) and list(map(code.of, statement.targets)) == [instead.code]:
        return Change((code.without(statement),), "instead")  # ``x = x`` says nothing
    whole = isinstance(nodes[0], ast.stmt)
    edits = [Edit(*span, instead.code.replace("\n", line_break)) if whole else code.edit(nodes[0], instead.code)]
    if instead.before and statement is not None and indent is not None:
        start, before = code.span(statement)[0], instead.before.replace("\n", line_break)
        edits.insert(0, Edit(start, start, f"{before}{line_break}"))
    return Change(tuple(edits), "instead")
