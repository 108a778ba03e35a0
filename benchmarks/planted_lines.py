"""Was the line that a report blames the one that was changed when the fault was planted?

A statement counts as one line. Where one was taken out there is no such line: then what last set the name that it set,
or what uses that next, is right. Where a report says that a stage is left out between two lines, the changed line has
to lie between them; where it says that one of two lines is wrong (the other stands above), it has to be one of them.

The same is asked of a repair: a line is as good as the planted one if the file was found right with another text there.
"""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

from qkv.report import SourceLine

SETS = re.compile(r"\s*([\w.]+)\s*(?:[-+*/@|&]?=)[^=]|\s*(\w+)\.\w+_\(")
"""A statement that gives a name another value: ``scores = …``, ``scores *= …``, ``scores.masked_fill_(…)``."""


def is_planted(line: SourceLine, right: str, faulty: str) -> bool:
    """Whether a blamed line is the one that makes a right file this faulty one.

    Args:
        line: the line that the report has.
        right: source of the right file, or of one that was found right.
        faulty: source of the one that was judged.
    """
    changed, tree = changed_lines(right, faulty), ast.parse(faulty)
    if line.until is None:
        blamed = [_statement(tree, line.line)]
    elif line.until > line.line:
        blamed = [(line.line, line.until), _statement(tree, line.line), _statement(tree, line.until)]
    else:
        blamed = [_statement(tree, line.line), _statement(tree, line.until)]
    if any(first <= one <= last for one in changed for first, last in blamed):
        return True
    first, last = _statement(tree, line.line)
    return any(first <= one <= last for one in _beside_removed(right, faulty, changed))


def changed_lines(right: str, faulty: str) -> set[int]:
    """The lines of the faulty file that are new or other than before, and those around lines that are gone."""
    before, after = right.splitlines(), faulty.splitlines()
    lines: set[int] = set()
    moved = sorted(before) == sorted(after)
    for tag, _, _, first, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "delete":
            lines |= _written_around(after, first, first + 1)
        elif tag != "equal":
            for number in range(first + 1, end + 1):
                blank = not after[number - 1].strip()
                lines |= _written_around(after, number - 1, number + 1) if blank else {number}
    # Where statements have changed places, every one from the first to the last stands in another.
    return set(range(min(lines), max(lines) + 1)) if moved else lines


def _written_around(lines: list[str], above: int, below: int) -> set[int]:
    """The nearest lines with something on them, from these two on."""
    while above > 0 and not lines[above - 1].strip():
        above -= 1
    while below <= len(lines) and not lines[below - 1].strip():
        below += 1
    return {above, below}


def _statement(tree: ast.Module, line: int) -> tuple[int, int]:
    """First and last line of the shortest simple statement around a line."""
    around = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(around, key=lambda span: span[1] - span[0], default=(line, line))


def _beside_removed(right: str, faulty: str, changed: set[int]) -> set[int]:
    """Where the names are set and used that statements set which are gone."""
    after = faulty.splitlines()
    lines: set[int] = set()
    for gone in right.splitlines():
        sets = SETS.match(gone) if gone not in after and gone.strip() else None
        if sets is None:
            continue
        name = re.compile(rf"\b{re.escape(sets[1] or sets[2])}\b")
        numbered = list(enumerate(after, 1))
        set_above = [
            number
            for number, text in numbered
            if number <= min(changed) and (to := SETS.match(text)) and name.fullmatch(to[1] or to[2])
        ]
        used_below = [number for number, text in numbered if number >= max(changed) and name.search(text)]
        lines |= {*set_above[-1:], *used_below[:1]}
    return lines
