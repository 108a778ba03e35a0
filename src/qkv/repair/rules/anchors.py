"""Where the scores and the weights stand in code: what a softmax is given, what it gives, and the product before it."""

from __future__ import annotations

import ast

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Code

PRODUCTS = ("matmul", "bmm", "einsum", "dot", "inner", "baddbmm", "mm")


def softmax_argument(node: ast.AST) -> ast.expr | None:
    """What a softmax or an exponential is taken of; None for other nodes."""
    if not isinstance(node, ast.Call) or called(node) not in ("softmax", "exp", "log_softmax"):
        return None
    method = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in (
        "torch", "F", "np", "numpy", "nn.functional", "torch.nn.functional", "math", "special", "jax.nn",
    )  # fmt: skip
    if method:
        assert isinstance(node.func, ast.Attribute)
        return node.func.value
    return node.args[0] if node.args else None


def is_product(node: ast.AST) -> bool:
    """Whether a node is a product of two arrays."""
    return (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)) or called(node) in PRODUCTS


def scores_at(code: Code, node: ast.AST) -> bool:
    """Whether a node is the scores: what a softmax is given, or a product in front of it."""
    above = code.parents.get(node)
    if above is not None and isinstance(node, ast.expr):
        if softmax_argument(above) is node:
            return True
        if isinstance(above, ast.Attribute) and softmax_argument(code.parents.get(above, above)) is node:
            return True
    if not is_product(node):
        return False
    function = code.function_of(node)
    ends = [code.span(inner)[1] for inner in ast.walk(function) if softmax_argument(inner) is not None]
    return not ends or code.span(node)[0] < max(ends)


def all_scores(code: Code, node: ast.AST) -> list[ast.expr]:
    """The scores in the function that a node stands in: what its softmax is given; the products where it has none.

    Where they were joined by sinks, or their maximum was taken off, what they were before that too.
    """
    function = code.function_of(node)
    nodes = [one for one in ast.walk(function) if isinstance(one, ast.expr) and scores_at(code, one)]
    given = [one for one in nodes if not is_product(one) or softmax_argument(code.parents[one]) is one]
    names = {one.id for one in given if isinstance(one, ast.Name)}
    made = (one for one in ast.walk(function) if isinstance(one, ast.Assign) and dotted(one.targets[0]) in names)
    return [*given, *(before for one in made if (before := _before(one.value)) is not None)] or nodes


def _before(value: ast.expr) -> ast.expr | None:
    """The scores in what joins others to them, or takes their maximum off; None for another expression."""
    if isinstance(value, ast.Call) and called(value) in ("cat", "concat", "concatenate") and value.args:
        parts = value.args[0]
        return parts.elts[0] if isinstance(parts, ast.List | ast.Tuple) and parts.elts else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        taken = value.right.value if isinstance(value.right, ast.Attribute | ast.Subscript) else value.right
        return value.left if called(taken) in ("max", "amax") else None
    return None


def weights_at(code: Code, node: ast.AST) -> bool:
    """Whether a node is the weights: what a softmax gives, or what it was divided by its sum."""
    return called(node) == "softmax" or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and called(node.right) == "sum"
    )
