"""Numbers on their way: what is computed with single numbers is no array's doing. The text says what that is."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

from executing import Source

ADDING = frozenset({"append", "extend", "insert"})
"""Methods by which a list is added to."""

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Line = tuple[str, int]


class Numbers:
    """Single numbers that arrays have given, by the lines on which they did."""

    def __init__(self) -> None:
        self._given: dict[Line, list[int]] = {}
        self._used: dict[Line, int] = {}

    def fork(self) -> Numbers:
        """The same numbers, to go on from here by themselves."""
        other = Numbers()
        other._given, other._used = {line: list(found) for line, found in self._given.items()}, dict(self._used)
        return other

    def give(self, value: int, frames: Iterator[FrameType]) -> None:
        """Nothing; an array has given a number, which is a value of the recording.

        Args:
            value: the value's number.
            frames: where that is, and the calls that led there.
        """
        for frame in frames:
            self._given.setdefault((frame.f_code.co_filename, frame.f_lineno), []).append(value)

    def behind(self, frame: FrameType) -> list[int]:
        """The values that a number may be computed with that is put into an array now: by the names it is written in.

        Of each line those given since a number was last put there; where none was, the last of all.
        """
        here = frame.f_code.co_filename, frame.f_lineno
        last, found = self._used.get(here, -1), []
        for line in lines_behind(*here) if self._given else ():
            given = self._given.get((here[0], line), [])
            found += given[bisect_right(given, last) :] or given[-1:]
        self._used[here] = max(found, default=last)
        return sorted({*found})


@lru_cache(maxsize=4096)
def lines_behind(file: str, line: int) -> tuple[int, ...]:
    """The lines of a function that what is computed on one of its lines depends on by name, that line included."""
    tree = Source.for_filename(file).tree
    scope = None if tree is None else _scope(tree, line)
    if scope is None:
        return ()
    bindings = list(_bindings(scope))
    lines, names = set(), {""}
    for node in ast.walk(scope):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and line in _span(node):
            lines |= {*_span(node)}
            names |= _names(node) - _written_to(node)
    while True:
        new = [one for one in bindings if one[0] & names and not {*one[2]} <= lines]
        if not new:
            return tuple(sorted(lines))
        for _, used, span in new:
            names |= used
            lines |= {*span}


def _scope(tree: ast.Module, line: int) -> Scope:
    """The innermost function around a line; the module where there is none."""
    around = [node for node in ast.walk(tree) if isinstance(node, Scope) and line in _span(node)]
    return max(around, key=lambda node: _span(node).start, default=tree)


def _bindings(scope: Scope) -> Iterator[tuple[set[str], set[str], range]]:
    """What a scope's statements bind: the names, the names they are computed with, and the lines."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets, value):
                yield {name for target in targets for name in _bound(target)}, _names(value), _span(node)
            case ast.AugAssign(target, _, value) | ast.AnnAssign(target, _, ast.expr() as value):
                yield _bound(target), _names(value), _span(node)
            case ast.NamedExpr(target, value):
                yield _bound(target), _names(value), _span(node)
            case ast.For(target, iterated):
                yield _bound(target), _names(iterated), range(node.lineno, (iterated.end_lineno or node.lineno) + 1)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method), arguments)) if method in ADDING:
                yield {name}, {one for argument in arguments for one in _names(argument)}, _span(node)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _bound(target: ast.expr) -> set[str]:
    """The names that a target gives another value, or an entry of it."""
    if isinstance(target, ast.Tuple | ast.List):
        return {name for one in target.elts for name in _bound(one)}
    return _bound(target.value) if isinstance(target, ast.Subscript | ast.Starred) else _names(target)


def _written_to(statement: ast.stmt) -> set[str]:
    """The arrays that a statement writes entries of: what becomes of them is seen."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {name for target in targets for name in _bound(target)}


def _span(node: ast.AST) -> range:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return range(first, last + 1)
