"""Where the user's code stands when an operation is called: the innermost frame of theirs, and the expression in it."""

from __future__ import annotations

import ast
import linecache
import os
import site
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from executing import Source

from qkv.adapters.recording import Place
from qkv.adapters.tracebacks import is_own

_STORES = ("register_buffer", "register_parameter")
"""Methods that assign to the attribute named by their first argument."""
_LIBRARIES = ("torch", "numpy")
"""Packages that stay libraries even where a class of theirs is the candidate: what they do is what is watched."""
_CALLING = str(Path(__file__).with_name("candidate.py"))
"""The file of qkv that calls candidates."""
_INNER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class Places:
    """The places of one recording, each once.

    Args:
        files: files that are the user's wherever they stand, but for torch's and NumPy's. Where one lies in an
            installed package, all of that package is the user's.
    """

    def __init__(self, files: Collection[str] = ()) -> None:
        homes = {file: _package(file) for file in files}
        homes = {file: home for file, home in homes.items() if home is None or home.name not in _LIBRARIES}
        self._files = frozenset(homes)
        # The rest of qkv is what watches.
        self._packages = tuple(f"{home}{os.sep}" for home in homes.values() if home is not None and home.name != "qkv")
        self._users: dict[str, bool] = {}
        self._numbers: dict[tuple[CodeType, int], int] = {}
        self.found: list[Place] = []

    def fork(self) -> Places:
        """The same places, to go on from here by themselves."""
        other = Places(self._files)
        other._users, other._numbers, other.found = self._users, dict(self._numbers), list(self.found)
        return other

    def is_users(self, file: str) -> bool:
        """Whether code of this file is the user's, rather than a library's or qkv's."""
        known = self._users.get(file)
        if known is None:
            known = file in self._files or file.startswith(self._packages) or is_own(file)
            self._users[file] = known
        return known

    def users_frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's, from this one outwards; that which calls qkv itself is none."""
        while frame is not None and not self.is_users(frame.f_code.co_filename):
            frame = None if frame.f_code.co_filename == _CALLING else frame.f_back
        return frame

    def number(self, frame: FrameType) -> int:
        """The number of the place where a frame of the user's stands."""
        key = (frame.f_code, frame.f_lasti)
        if key not in self._numbers:
            place = _place(frame)
            if place not in self.found:
                self.found.append(place)
            self._numbers[key] = self.found.index(place)
        return self._numbers[key]

    def calls(self, frame: FrameType) -> list[int]:
        """The numbers of the places of the user's calls that led to a frame of theirs, the innermost first."""
        frames = list(self.frames(frame))
        # A comprehension isn't called by anybody.
        return [self.number(outer) for inner, outer in pairwise(frames) if inner.f_code.co_name not in _INNER]

    def frames(self, frame: FrameType) -> Iterator[FrameType]:
        """A frame of the user's, and those of theirs that called it, the innermost first."""
        yield frame
        while frame.f_code.co_name != "<module>" and (outer := self.users_frame(frame.f_back)) is not None:
            yield (frame := outer)


@cache
def _roots() -> tuple[str, ...]:
    """Folders that installed packages stand in."""
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib")} | {*site.getsitepackages()}
    return tuple(path for path in paths if path)


def _package(file: str) -> Path | None:
    """The folder of the installed package that a file stands in; None for other files."""
    for root in map(Path, _roots()):
        if Path(file).is_relative_to(root):
            name, *inside = Path(file).relative_to(root).parts
            return root / name if inside else None
    return None


def _place(frame: FrameType) -> Place:
    file, function = frame.f_code.co_filename, _function(frame.f_code)
    executed = Source.executing(frame)
    node, lines = executed.node, executed.source.lines
    if node is not None:
        whole = _whole(node)
        return Place(file, whole.lineno, whole.end_lineno or whole.lineno, whole.col_offset, whole.end_col_offset or 0,
                     function, _text(whole, lines), _target(whole, lines), _made(whole, lines))  # fmt: skip
    line = linecache.getline(file, frame.f_lineno).rstrip()
    bare = line.lstrip()
    start, end = len(line[: len(line) - len(bare)].encode()), len(line.encode())
    statements = executed.statements or ()
    target = _target(next(iter(statements)), lines) if len(statements) == 1 else ""
    return Place(file, frame.f_lineno, frame.f_lineno, start, end, function, bare, target, target)


def _function(code: CodeType) -> str:
    """The qualified name of the function that code belongs to; a comprehension belongs to what it stands in."""
    names = code.co_qualname.split(".")
    while names[-1] in _INNER:
        names = names[:-2] or [""]
    return "" if names == ["<module>"] else ".".join(names)


def _whole(node: Any) -> ast.expr | ast.stmt:
    """The node; of a loop what it goes through; of a target its statement: what ``a[i] = b`` does is no expression."""
    node = getattr(node, "iter", node)
    stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    while stored and not isinstance(node, ast.stmt):
        node = node.parent  # executing sets it
    assert isinstance(node, ast.expr | ast.stmt)
    return node


def _text(node: ast.expr | ast.stmt, lines: Sequence[str]) -> str:
    """A node as it is written. `ast.get_source_segment` would split the whole file anew each time."""
    own = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    own[-1] = own[-1][: node.end_col_offset]
    own[0] = own[0][node.col_offset :]
    return b"\n".join(own).decode()


def _target(node: Any, lines: Sequence[str]) -> str:
    """What the statement around a node, or ``:=``, assigns to, as it is written."""
    while not isinstance(node, ast.stmt | ast.NamedExpr | ast.Lambda):
        node = node.parent
    match node:
        case ast.Assign():
            return " = ".join(_text(one, lines) for one in node.targets)
        case ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
            return _text(node.target, lines)
        case ast.Expr(ast.Call(ast.Attribute(owner, method), [ast.Constant(str(name)), *_])) if method in _STORES:
            return f"{_text(owner, lines)}.{name}"
    return ""


def _made(node: Any, lines: Sequence[str]) -> str:
    """What this very expression is assigned to, as it is written; empty for a part of a larger one.

    One of several that are taken apart into as many names is its own; each that a comprehension gives is all of them.
    ``a[i] = b`` makes another ``a``.
    """
    outer: Any = getattr(node, "parent", None)
    while isinstance(outer, ast.IfExp) and node is not outer.test:
        node, outer = outer, getattr(outer, "parent", None)
    target = _first_target(getattr(outer, "parent", None))
    several = isinstance(target, ast.Tuple | ast.List)
    match outer:
        case ast.Tuple(elts) if several and len(target.elts) == len(elts):
            return _text(target.elts[elts.index(node)], lines)
        case ast.GeneratorExp() | ast.ListComp() if several and outer.elt is node:
            return _text(target, lines)
        case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
            return _target(outer, lines)
    if not isinstance(node, ast.stmt):
        return ""
    changed = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return _text(changed.value, lines) if isinstance(changed, ast.Subscript) else _target(node, lines)


def _first_target(statement: Any) -> Any:
    return statement.targets[0] if isinstance(statement, ast.Assign) else None
