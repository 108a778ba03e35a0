"""Changes: a patch as the places that it changes, with what differs within their lines marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from qkv.adapters.code_lines import code_lines
from qkv.report.document import Patch

Marked = Sequence[tuple[bool, str]]
"""A line as its pieces, each with whether it differs from what stands in its place."""

TOKENS = re.compile(r"\w+|\n|[^\S\n]+|[<>=!]=?|[*/]{1,2}|.")
"""What changes as a whole: a name, a number, an operator."""

ALIKE = 0.5
"""Share of the text that two pieces of code have in common from which on single changes in it are told."""

NO_END = "\\ No newline at end of file"
"""What a diff says behind a last line that nothing ends."""


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff.

    Attributes:
        sign: ``-``, ``+``, or a space.
        number: of the line in the file as it is; of an added one, that of the line that it comes in front of.
        pieces: the line.
    """

    sign: str
    number: int
    pieces: Marked

    @property
    def text(self) -> str:
        """The line in one piece."""
        return "".join(text for _, text in self.pieces)


@dataclass(frozen=True)
class Change:
    """Lines beside each other that change.

    Attributes:
        number: of the first of them in the file as it is.
        removed: the lines as they are.
        added: what stands there afterwards.
    """

    number: int
    removed: Sequence[Marked]
    added: Sequence[Marked]


def diff_lines(patch: Patch) -> list[DiffLine]:
    """The lines of a diff that change and those around them, in the order they stand in."""
    found: list[DiffLine] = []
    for changes, run in groupby(_numbered(patch), lambda line: line[0] != " "):
        lines = list(run)
        if not changes:
            found += [DiffLine(sign, number, [(False, text)]) for sign, number, text in lines]
            continue
        for sign, pieces in zip("-+", marked(*(_texts(lines, sign) for sign in "-+")), strict=True):
            found += [DiffLine(sign, number, one) for number, one in zip(_numbers(lines, sign), pieces, strict=True)]
    return found


def changed_places(lines: Sequence[DiffLine]) -> list[Change]:
    """The places that a diff changes, from the first to the last, without what all of their lines are indented by."""
    indents = [_indent(line) for line in lines if line.sign != " " and line.text.strip()]
    runs = (list(run) for changes, run in groupby(lines, lambda line: line.sign != " ") if changes)
    cut = min(indents, default=0)
    return [
        Change(run[0].number, *([_cut(line.pieces, cut) for line in run if line.sign == sign] for sign in "-+"))
        for run in runs
    ]


def _indent(line: DiffLine) -> int:
    return len(line.text) - len(line.text.lstrip())


def _cut(pieces: Marked, count: int) -> Marked:
    """A line without its first characters."""
    kept = []
    for differs, text in pieces:
        kept.append((differs, text[count:]))
        count = max(0, count - len(text))
    return [piece for piece in kept if piece[1]]


def marked(old: Sequence[str], new: Sequence[str]) -> tuple[list[Marked], list[Marked]]:
    """Lines and those in their place, each with what differs; whole where they have little in common."""
    one, other = (TOKENS.findall("\n".join(lines)) for lines in (old, new))
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    if not old or not new or matcher.ratio() < ALIKE:
        return [[(False, text)] for text in old], [[(False, text)] for text in new]
    blocks = matcher.get_opcodes()
    return (
        _lines((tag != "equal", "".join(one[start:end])) for tag, start, end, _, _ in blocks),
        _lines((tag != "equal", "".join(other[start:end])) for tag, _, _, start, end in blocks),
    )


def _lines(pieces: Iterator[tuple[bool, str]]) -> list[Marked]:
    """Pieces of a text as those of each of its lines."""
    lines: list[list[tuple[bool, str]]] = [[]]
    for differs, text in pieces:
        first, *others = text.split("\n")
        lines[-1].append((differs, first))
        lines += [[(differs, one)] for one in others]
    return [[piece for piece in line if piece[1]] for line in lines]


def _numbered(patch: Patch) -> Iterator[tuple[str, int, str]]:
    """Sign, number and text of each line of a diff."""
    number = 0
    for line in code_lines(patch.diff)[2:]:
        if line.startswith("@@"):
            number = int(re.findall(r"\d+", line)[0])
        elif not line.startswith(NO_END):
            yield line[:1] or " ", number, line[1:]
            number += line[:1] != "+"


def _texts(lines: Sequence[tuple[str, int, str]], sign: str) -> list[str]:
    return [text for one, _, text in lines if one == sign]


def _numbers(lines: Sequence[tuple[str, int, str]], sign: str) -> list[int]:
    return [number for one, number, _ in lines if one == sign]
