"""The text of a script or notebook, as the judge sees it before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from qkv.adapters.choosing import speaks_of_attention, words_of
from qkv.adapters.code_lines import code_lines
from qkv.adapters.notebooks import cell_of, source_of_notebook
from qkv.adapters.sources import parsed_file
from qkv.adapters.syntax import called, names_in
from qkv.adapters.targets import existing_file
from qkv.errors import CandidateError

_QUERY = {"q", "query", "queries", "xq"}
_PRODUCTS = {
    "matmul",
    "softmax",
    "exp",
    "einsum",
    "dot",
    "bmm",
    "mm",
    "inner",
    "tensordot",
    "scaled_dot_product_attention",
}


@dataclass(frozen=True)
class Text:
    """A file's code.

    Attributes:
        file: the file as given.
        path: where it stands.
        source: its Python; of a notebook all code cells one below the other.
        written: the same as its author wrote it: a notebook may hold lines that are no Python.
        cells: the line that each cell of a notebook begins at; empty for a script.
    """

    file: str
    path: Path
    source: str
    written: str
    cells: Sequence[int] = ()

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return code_lines(self.written)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax, to be read only."""
        return ast.parse(self.source)

    def place(self, line: int) -> str:
        """Where a line stands, in words: ``mine.py:7``, or ``cell 3, line 2``."""
        if not self.cells:
            return f"{self.file}:{line}"
        return "cell {}, line {}".format(*cell_of(self.cells, line))


def is_notebook(file: str) -> bool:
    """Whether a file is a notebook by its name."""
    return file.lower().endswith(".ipynb")


def text_of(file: str, data: bytes | None = None) -> Text:
    """The code of a file.

    Args:
        file: its name.
        data: what to take it to hold; None for what it holds.

    Raises:
        CandidateError: there is none, or it can't be read as Python.
    """
    path = existing_file(file)
    data = path.read_bytes() if data is None else data
    if is_notebook(file):
        source, written, cells = source_of_notebook(data.decode("utf-8", "replace"), file)
        parsed_file(path, file, source.encode())
        return Text(file, path, source, written, cells)
    parsed_file(path, file, data)
    source = decoded(data)
    return Text(file, path, source, source)


def script_of(target: Any, data: bytes | None = None) -> Text | None:
    """The script that a target is; None for a name in a file, an object, or a file in which an attention is defined.

    Args:
        target: what is to be judged.
        data: what to take its file to hold; None for what it holds.
    """
    if not isinstance(target, str | Path) or not str(target).lower().endswith((".py", ".ipynb")):
        return None
    try:
        text = text_of(str(Path(target).expanduser()), data)
    except CandidateError:
        return None  # whoever opens it says why
    return text if is_script(text.tree) else None


def decoded(source: bytes) -> str:
    """A source as Python decodes it."""
    return decode_source(source)


def is_script(tree: ast.Module) -> bool:
    """Whether a file's attention stands in its statements: products are made there, and no definition is an attention.

    Only the code is read. A definition counts where its name speaks of attention, where it takes a query, or where it
    makes products and the statements don't use it.
    """
    used = names_in(tree)
    if any(_is_attention(node) or _is_left_to_others(node, used) for node in tree.body):
        return False
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    renamed = {alias.asname for node in imports for alias in node.names if alias.name in _PRODUCTS and alias.asname}
    statements = [node for statement in tree.body for node in _outside_definitions(statement)]
    return any(_is_product(node) or (isinstance(node, ast.Name) and node.id in renamed) for node in statements)


def _is_attention(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return speaks_of_attention(node.name) or "context" in words_of(node.name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args]
        # A helper that makes one step of attention has such a name too: causal_mask, attention_scores.
        step = words_of(node.name)[-1:] in (["mask"], ["scores"], ["softmax"], ["score"])
        by_name = speaks_of_attention(node.name) and not step
        return bool(arguments) and (by_name or (arguments[0].arg.lower() in _QUERY and len(arguments) > 2))
    return False


def _is_left_to_others(node: ast.stmt, used: set[str]) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name in used:
        return False
    return any(_is_product(part) for part in ast.walk(node))


def _outside_definitions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outside_definitions(child)


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        return True
    return called(node) in _PRODUCTS
