"""A script run statement by statement, as ``python script.py`` would, with notes on all that it computes."""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from qkv.adapters.code_lines import code_lines
from qkv.adapters.loading import leave_no_bytecode
from qkv.adapters.messages import ScriptRun
from qkv.adapters.scripts.notes import Notes
from qkv.adapters.scripts.noting import NOTE, Noting
from qkv.adapters.shaping.failing import shape_clash
from qkv.adapters.surroundings import seeded
from qkv.adapters.tracebacks import one_line


def run_script(path: str, source: str) -> ScriptRun:
    """What a script did until its end, or until a statement failed.

    A statement that needs a package that isn't there is left out, and so is whatever needs what it would have made:
    plots are no part of an attention.

    Args:
        path: where the script stands; its folder is searched for what it imports.
        source: its text.
    """
    folder = str(Path(path).parent)
    leave_no_bytecode(Path(folder))
    sys.path[:] = [folder, *(one for one in sys.path if one != folder)]
    linecache.cache[path] = (len(source), None, code_lines(source, keepends=True), path)
    with _as_in_a_new_process(source):
        return _Script(path, source).run()


@contextlib.contextmanager
def _as_in_a_new_process(source: str) -> Iterator[None]:
    """Nothing; meanwhile random numbers and defaults are those that every script begins with."""
    if "torch" in source:
        with contextlib.suppress(ImportError):
            import torch  # before its random numbers are seeded
    with seeded(0):
        yield
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_default_dtype(torch.float32)


@dataclass
class _Script:
    path: str
    source: str
    missing: set[str] = field(default_factory=set)
    skipped: list[int] = field(default_factory=list)

    def run(self) -> ScriptRun:
        noting = Noting(self.source, self.path)
        module = ModuleType("__main__")
        module.__file__ = self.path
        # Dataclasses and pickles look their module up by name.
        sys.modules["__main__"] = module
        tree = ast.parse(self.source)
        flags = _future_flags(tree)
        names = [_names(statement) for statement in tree.body]
        rewritten = [noting.visit(statement) for statement in tree.body]
        notes = Notes(noting.nodes)
        setattr(module, NOTE, notes)
        error, line, clash = "", 0, ""
        for statement, used in zip(rewritten, names, strict=True):
            try:
                self._run_statement(statement, used, module, flags)
            except SystemExit as ended:
                line = self._line_of(ended)
                break
            except BaseException as raised:  # noqa: BLE001 - whatever a script raises is its own affair
                error, line = one_line(raised), self._line_of(raised)
                clash = shape_clash(raised, lambda path: path == self.path, {})
                break
        frameworks = [name for name in ("torch", "numpy") if any(_imports(node, name) for node in ast.walk(tree))]
        lists = {name: array for name, value in vars(module).items() if (array := numbers_in(value)) is not None}
        return ScriptRun(
            notes.recording(), notes.bound(), notes.held(), error, line, clash, self.skipped, frameworks=frameworks,
            lists=lists,
        )  # fmt: skip

    def _run_statement(self, statement: Any, used: set[str], module: ModuleType, flags: int) -> None:
        body = statement if isinstance(statement, list) else [statement]
        if used & self.missing:
            self._skip(body, used)
            return
        code = compile(ast.Module(body, []), self.path, "exec", flags=flags, dont_inherit=True)
        try:
            exec(code, module.__dict__)  # noqa: S102 - running it is what was asked for
        except ModuleNotFoundError as absent:
            if not isinstance(body[0], ast.Import | ast.ImportFrom) or absent.name is None:
                raise
            self._skip(body, used)
        except NameError as absent:
            # A function was called that needs what could not be imported.
            if absent.name not in self.missing:
                raise
            self._skip(body, set())

    def _skip(self, body: list[ast.stmt], used: set[str]) -> None:
        """Nothing; from now on there is nothing under the names that these statements would have made."""
        self.skipped.append(body[0].lineno)
        self.missing |= {name for statement in body for name in _made(statement)}

    def _line_of(self, error: BaseException) -> int:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.path]
        return own[-1].lineno or 0 if own else getattr(error, "lineno", None) or 0


MOST_NUMBERS = 10_000
"""In lists: who has more of them computes with arrays."""


def numbers_in(value: Any) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The numbers of a list, or of a list of rows that are equally long; None for anything else."""
    if type(value) not in (list, tuple) or not 0 < len(value) <= MOST_NUMBERS:
        return None
    with contextlib.suppress(Exception):  # the items may be anything, and raise what they like
        in_rows = isinstance(value[0], list | tuple) or getattr(value[0], "ndim", 0) > 0
        rows = [[float(one) for one in row] if in_rows else float(row) for row in value]
        array = np.array(rows, np.float64)
        return array if 0 < array.size <= MOST_NUMBERS else None
    return None


def _imports(node: ast.AST, package: str) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == package for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package


def _names(statement: ast.stmt) -> set[str]:
    """The names that a statement reads when it runs; a definition reads none."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _made(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives something to."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]


def _future_flags(tree: ast.Module) -> int:
    import __future__

    names = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    return sum(getattr(__future__, name).compiler_flag for name in names)
