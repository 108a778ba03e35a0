"""Highlighting: code as lines of pieces, each with the kind of thing that it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

Piece = tuple[str, str]
"""The class of a piece of code, empty for plain code, and its text."""

CLASSES = (
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Function, "defined"),
    (Name.Class, "defined"),
    (Name.Decorator, "defined"),
)
"""The kinds that are told apart, few of them: a page has its own colours that say what is wrong."""


def highlighted(lines: Sequence[str]) -> list[list[Piece]]:
    """Each line as its pieces, in the order they stand in."""
    # A line break within a line, as a form feed is to Python, would shift all that follow.
    joined = "\n".join(line.translate(_BREAKS) for line in lines)
    found: list[list[Piece]] = [[]]
    for kind, text in _pieces(joined):
        first, *others = text.split("\n")
        found[-1].append((kind, first))
        found += [[(kind, one)] for one in others]
    return [[piece for piece in line if piece[1]] for line in found[: len(lines)]]


_BREAKS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))


def _pieces(code: str) -> Iterator[Piece]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    for token, text in lexer.get_tokens(code):
        yield next((name for kind, name in CLASSES if token in kind), ""), text
