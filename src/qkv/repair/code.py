"""The text of a candidate's file, its syntax tree, and edits of it that leave every other character alone."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from qkv.adapters.syntax import LOOSE, NESTING, parents_of

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Edit(NamedTuple):
    """The characters from ``start`` up to ``end`` of a text, and what stands there afterwards."""

    start: int
    end: int
    new: str


class Change(NamedTuple):
    """Edits that belong together. Changes of one kind may be made at several places at once."""

    edits: tuple[Edit, ...]
    kind: str


class Code:
    """One file.

    Args:
        data: its bytes. Encoding, byte order mark and line ends are those of the edited bytes too.
        known: numbers that it is meant to have somewhere: those of the spec.

    Raises:
        SyntaxError: it is no Python.
        UnicodeDecodeError: it is no text in the encoding that it declares.
    """

    def __init__(self, data: bytes, known: Sequence[float] = ()) -> None:
        self.data, self.known = data, known
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        declared = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        self._encoding = "utf-8" if declared == "utf-8-sig" else declared
        self.text = data[len(self._mark) :].decode(self._encoding)
        self.tree = ast.parse(self.text)
        self._lines = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.text))]
        self.parents = parents_of(self.tree)
        self.newline = next(iter(re.findall(r"\r\n|\r|\n", self.text)), "\n")
        self.uses_torch = any(name.partition(".")[0] == "torch" for name in self._imported())

    def _imported(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""

    def offset(self, line: int, column: int) -> int:
        """Where a place is in the text; `ast` counts lines from 1 and columns in bytes of UTF-8."""
        start = self._lines[line - 1]
        if self.text.isascii():
            return start + column
        end = self._lines[line] if line < len(self._lines) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where an expression or a statement begins and ends in the text."""
        assert isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        """The node as it is written."""
        start, end = self.span(node)
        return self.text[start:end]

    def operand(self, node: ast.AST) -> str:
        """The node as it is written, in brackets if an operator or a method behind it would tear it apart."""
        return f"({self.of(node)})" if isinstance(node, LOOSE) else self.of(node)

    def line_of(self, place: int) -> int:
        """The number of the line, from 1, that a place in the text is in."""
        return sum(start <= place for start in self._lines)

    def function_of(self, node: ast.AST) -> ast.AST:
        """The innermost function that a node stands in; the module where it stands in none."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, Function):
            above = self.parents.get(above)
        return above or self.tree

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that a node stands in."""
        while not isinstance(node, ast.stmt):
            if node not in self.parents:
                return None
            node = self.parents[node]
        return node

    def put(self, node: ast.AST, new: str, kind: str) -> Change:
        """The change that writes something else in the place of an expression, in brackets where they are needed."""
        return Change((self.edit(node, new),), kind)

    def edit(self, node: ast.AST, new: str) -> Edit:
        """The edit of `put`."""
        start, end = self.span(node)
        above = self.parents.get(node)
        inside = isinstance(above, NESTING) and not (isinstance(above, ast.Subscript) and above.slice is node)
        if self._is_bracketed(node):
            start, end = start - 1, end + 1
        elif isinstance(node, ast.BinOp) and _operator_of(new) is type(node.op):
            inside = False
        return Edit(start, end, f"({new})" if (inside and is_loose(new)) or "\n" in new else new)

    def _is_bracketed(self, node: ast.AST) -> bool:
        """Whether a node stands in brackets of its own, and not in those of a call."""
        start, end = self.span(node)
        called = isinstance(self.parents.get(node), ast.Call | ast.ClassDef) and not self._is_called(node)
        return not called and self.text[start - 1 : start] == "(" and self.text[end : end + 1] == ")"

    def _is_called(self, node: ast.AST) -> bool:
        return getattr(self.parents.get(node), "func", None) is node

    def operator(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Edit:
        """The edit that puts another operator between two operands."""
        place = self.text.index(old, self.span(left)[1], self.span(right)[0])
        return Edit(place, place + len(old), new)

    def indent_of(self, statement: ast.stmt) -> str | None:
        """The white space in front of a statement; None where something else stands on its line."""
        start = self.span(statement)[0]
        before = self.text[self._lines[statement.lineno - 1] : start]
        return None if before.strip() else before

    def without(self, statement: ast.stmt) -> Edit:
        """The edit that takes a statement out: its lines, if nothing else stands there and something is left."""
        start, end = self.span(statement)
        above = self.parents[statement]
        alone = any(getattr(above, name, None) == [statement] for name in ("body", "orelse", "finalbody"))
        first, last = self.text.rfind("\n", 0, start) + 1, re.compile(r"[ \t]*(\r\n|\r|\n|$)").match(self.text, end)
        if alone or last is None or self.text[first:start].strip():
            return Edit(start, end, "pass")
        return Edit(first, last.end(), "")

    def edited(self, edits: Iterable[Edit]) -> bytes | None:
        """The file's bytes with these edits made; None where they overlap, or are none that its encoding can write."""
        pieces, place = [], 0
        for edit in sorted(edits):
            if edit.start < place:
                return None
            pieces += [self.text[place : edit.start], edit.new]
            place = edit.end
        try:
            return self._mark + "".join([*pieces, self.text[place:]]).encode(self._encoding)
        except UnicodeEncodeError:
            return None


def is_loose(expression: str) -> bool:
    """Whether an operator or a method behind an expression would tear it apart."""
    try:
        return isinstance(ast.parse(expression.strip(), mode="eval").body, LOOSE)
    except SyntaxError:
        return True


def _operator_of(expression: str) -> type[ast.operator] | None:
    """The operator that an expression is made with; None for anything else."""
    try:
        made = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return None
    return type(made.op) if isinstance(made, ast.BinOp) else None


def integer(node: ast.AST) -> int | None:
    """The integer that is written there, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = integer(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def number(node: ast.AST) -> float | None:
    """The number that is written there, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None
