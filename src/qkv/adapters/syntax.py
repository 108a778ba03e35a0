"""Syntax: what is asked of a candidate's syntax tree wherever its code is read."""

from __future__ import annotations

import ast

NESTING = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Subscript, ast.Starred)
"""Nodes whose parts have to be put into brackets where they are looser than the node itself."""

LOOSE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda)
"""Nodes that have to be put into brackets as a part of such a node."""


def dotted(node: ast.AST) -> str:
    """The name that an expression is: ``self.scale``, ``F.softmax``; empty where it is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def called(node: ast.AST) -> str:
    """The last name of what is called: ``softmax`` for ``F.softmax(x)`` and ``x.softmax()``; empty for no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)


def names_in(node: ast.AST) -> set[str]:
    """The names in a piece of code."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """What each node stands in directly."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
