"""Edits of order: a step taken before or after its neighbour."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.repair.code import Change, Code, Edit

FARTHEST = 3
"""Statements that one may be moved over."""


def statements(code: Code, node: ast.AST) -> Iterator[Change]:
    """Two statements of one block the other way round: the softcap before the mask, the norm before the rotation."""
    body = getattr(node, "body", None)
    function = node if isinstance(node, ast.FunctionDef) else code.function_of(node)
    if not isinstance(body, list) or getattr(function, "name", "__init__") == "__init__":
        return
    for place, first in enumerate(body):
        for second in body[place + 1 : place + 1 + FARTHEST]:
            movable = all(isinstance(one, ast.Assign | ast.AugAssign | ast.If | ast.Expr) for one in (first, second))
            if movable and code.of(first) != code.of(second):
                edits = Edit(*code.span(first), code.of(second)), Edit(*code.span(second), code.of(first))
                yield Change(edits, "")
