"""Edits that leave something out: a call around an expression, an operand, an argument, a condition, a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit

KEPT = frozenset(["softmax", "masked_fill", "dropout", "Dropout", "super", "__init__", "view_as_complex"])
"""Calls that are in no attention by mistake."""


def call(code: Code, node: ast.AST) -> Iterator[Change]:
    """What a method or a function is given, in the place of what it makes of it: ``x`` for ``x.transpose(1, 2)``."""
    if not isinstance(node, ast.Call) or called(node) in KEPT:
        return
    kind = f"no {code.of(node.func).rpartition('.')[2]}"
    module = dotted(node.func).partition(".")[0] in ("torch", "np", "numpy", "nn", "F", "math", "self", "jnp")
    given = node.func.value if isinstance(node.func, ast.Attribute) and not module else next(iter(node.args), None)
    whole = code.parents.get(node)
    if given is not None and isinstance(whole, ast.Assign) and [code.of(given)] == list(map(code.of, whole.targets)):
        yield Change((code.without(whole),), kind)  # ``x = x`` says nothing
    elif given is not None:
        yield code.put(node, code.of(given), kind)


def attribute(code: Code, node: ast.AST) -> Iterator[Change]:
    """The matrix itself for its transpose: ``mask`` for ``mask.T``."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield code.put(node, code.of(node.value), f"no {node.attr}")


def operand(code: Code, node: ast.AST) -> Iterator[Change]:
    """One side of an operator alone: ``scores`` for ``scores * scale``."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        for side in (node.left, node.right):
            other = node.right if side is node.left else node.left
            yield code.put(node, code.of(side), f"no {code.of(other)}")


def argument(code: Code, node: ast.AST) -> Iterator[Change]:
    """A call without one of its keyword arguments: ``scale=1.0``."""
    if isinstance(node, ast.Call):
        parts = sorted([code.span(arg) for arg in node.args] + [code.span(one) for one in node.keywords])
        for keyword in node.keywords:
            start, end = code.span(keyword)
            before = [part for part in parts if part[1] <= start]
            after = [part for part in parts if part[0] >= end]
            if before:
                start = before[-1][1]
            elif after:
                end = after[0][0]
            yield Change((Edit(start, end, ""),), f"no {keyword.arg}")


def condition(code: Code, node: ast.AST) -> Iterator[Change]:
    """A condition without one of its parts, or for good: ``if mask is not None and self.training``."""
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        yield code.put(node, code.of(node.values[0]), "no second condition")
        yield code.put(node, code.of(node.values[1]), "no first condition")
    if isinstance(node, ast.IfExp):
        yield code.put(node, code.of(node.body), "no else")
        yield code.put(node, code.of(node.orelse), "no if")
    if isinstance(node, ast.If) and not node.orelse and dotted(node.test).endswith("training"):
        yield code.put(node.test, "True", "always")


def part(code: Code, node: ast.AST) -> Iterator[Change]:
    """A list or a tuple without its last part."""
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 2 and isinstance(node.ctx, ast.Load):
        for before, one in zip(node.elts, node.elts[1:], strict=False):
            yield Change((Edit(code.span(before)[1], code.span(one)[1], ""),), f"no {code.of(one)}")


def statement(code: Code, node: ast.AST) -> Iterator[Change]:
    """Nothing for an assignment that makes something new of what it had: ``scores = scores * scale``."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.If):
        above = code.function_of(node)
        if above is not code.tree and getattr(above, "name", "") != "__init__":
            yield Change((code.without(node),), "")
