"""The line that a repair shows to be wrong: with another text there the file was found right."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.adapters.targets import same_file
from qkv.adapters.texts import Text, text_of
from qkv.repair.source import changed
from qkv.report import Patch, SourceLine


@dataclass(frozen=True)
class _Stretch:
    """Lines that change together, from 1; where some are only put in, those above and below.

    Attributes:
        first: the first one.
        last: the last one.
        put_in: whether nothing is taken out.
    """

    first: int
    last: int
    put_in: bool = False


def line_shown_by(patch: Patch, blamed: SourceLine | None) -> SourceLine | None:
    """The line that a repair changes; the one that is blamed, where that is as sure.

    A candidate that is right with another text in one place may have its fault there, whatever watching it told. But
    some repairs undo a fault behind it. So the blamed line stays where what it makes is just what the diagnosed fault
    would make, where both of the lines are known that don't go together, or where the repair stands further down in the
    same function.

    Args:
        patch: the repair, with which the file was found right.
        blamed: the line that is blamed so far, of a notebook in its joint source; None where none is.
    """
    before, after = text_of(patch.path, patch.original), text_of(patch.path, patch.edited)
    stretches = list(_stretches(before.lines, after.lines))
    if not stretches:
        return blamed
    if blamed is not None and (blamed.confirmed or blamed.until is not None):
        return blamed
    if blamed is not None and (_is_in(blamed, before, stretches) or _is_above(blamed, before, stretches[0])):
        return blamed
    first, last = stretches[0], stretches[-1]
    until = last.last if first.put_in or last is not first else None
    note = "it is found right with the change" + (f" between this line and line {until}" if until else " of this line")
    return SourceLine(patch.path, first.first, before.lines[first.first - 1].strip(), note, until)


def _is_in(blamed: SourceLine, text: Text, stretches: Sequence[_Stretch]) -> bool:
    """Whether a line that is blamed stands in a statement that changes."""
    if not same_file(blamed.file, text.path):
        return False
    tree = text.tree
    return any(one.first <= blamed.line <= one.last for one in (_statement(tree, stretch) for stretch in stretches))


def _is_above(blamed: SourceLine, text: Text, changed: _Stretch) -> bool:
    """Whether a line that is blamed stands above a change in the same function."""
    if not same_file(blamed.file, text.path):
        return False
    functions = [node for node in ast.walk(text.tree) if isinstance(node, ast.FunctionDef)]
    around = [
        max((one.lineno for one in functions if one.lineno < line <= (one.end_lineno or 0)), default=0)
        for line in (blamed.line, changed.first)
    ]
    return blamed.line < changed.first and around[0] == around[1] > 0


def _stretches(before: Sequence[str], after: Sequence[str]) -> list[_Stretch]:
    """Where two texts differ, as lines of the first."""
    found = []
    for kind, start, end, _, _ in changed(before, after):
        if kind == "insert":
            above = max((line for line in range(1, start + 1) if before[line - 1].strip()), default=start + 1)
            below = min((line for line in range(start + 1, len(before) + 1) if before[line - 1].strip()), default=above)
            found.append(_Stretch(above, below, put_in=True))
        else:
            found.append(_Stretch(start + 1, end))
    return found


def _statement(tree: ast.Module, lines: _Stretch) -> _Stretch:
    """The lines of the shortest simple statement around some lines; these themselves where none is."""
    around = [
        _Stretch(node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
        and node.lineno <= lines.first and lines.last <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    return min(around, key=lambda one: one.last - one.first, default=lines)
