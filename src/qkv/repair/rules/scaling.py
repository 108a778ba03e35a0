"""Edits of the scale: what it is the root of, whether it is divided or multiplied by, and where it is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code
from qkv.repair.rules.anchors import scores_at, weights_at
from qkv.repair.scope import AXIS_SIZE, HEAD_SIZE, attributes, bound, is_size, sizes

MOST_SIZES = 6
"""Sizes that a root is tried of."""

SCALE = re.compile(r"scal(e|ing)$|norm_factor$", re.IGNORECASE)


def root(code: Code, size: str) -> str:
    """The square root of a size, as this file writes it."""
    if "math.sqrt(" in code.text or re.search(r"^import math$", code.text, re.MULTILINE):
        return f"math.sqrt({size})"
    if not code.uses_torch and "np.sqrt(" in code.text:
        return f"np.sqrt({size})"
    return f"{size} ** 0.5" if " ** " in code.text or "**" not in code.text else f"{size}**0.5"


def head_sizes(code: Code, node: ast.AST) -> list[str]:
    """What the width of a head may be written as there."""
    return list(islice((size for size in sizes(code, node) if HEAD_SIZE.search(size)), MOST_SIZES))


def inverse_root(code: Code, size: str) -> str:
    """One over the square root of a size."""
    return f"{size} ** -0.5" if " ** " in code.text or "**" not in code.text else f"{size}**-0.5"


def _is_root(node: ast.AST) -> bool:
    power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    return power or called(node) in ("sqrt", "rsqrt")


def of_another_size(code: Code, node: ast.AST) -> Iterator[Change]:
    """The root of a head's width for that of something else, or for the width itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        under = node.left
    elif called(node) in ("sqrt", "rsqrt") and isinstance(node, ast.Call) and node.args:
        under = node.args[0]
    else:
        return
    for size in head_sizes(code, node):
        if size != code.of(under):
            yield code.put(under, size, "under the root")


def turned_over(code: Code, node: ast.AST) -> Iterator[Change]:
    """One over a root for the root, or the reverse, and the root of a size that something is divided by."""
    if _is_root(node):
        yield code.put(node, f"1.0 / {code.operand(node)}", "1 /")
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return
    if _is_root(node.right):
        yield code.put(node, code.of(node.right), "no 1 /")
    elif is_size(dotted(node.right)) or AXIS_SIZE.search(code.of(node.right)):
        for size in dict.fromkeys((code.of(node.right), *head_sizes(code, node))):
            yield code.put(node.right, root(code, size), "root")


def constant(code: Code, node: ast.AST) -> Iterator[Change]:
    """The scale in the place of another factor or of what is passed for it: ``scale=0.12``."""
    above = code.parents.get(node)
    factor = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult | ast.Div) and isinstance(node, ast.expr)
    if factor or (isinstance(above, ast.keyword) and above.arg in ("scale", "softmax_scale", "alpha", "scaling")):
        divides = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div)
        if divides and above.left is node:  # type: ignore[union-attr]
            return
        for name in existing(code, node):
            if name != code.of(node):
                yield code.put(node, name, "scale")
        if isinstance(node, ast.Constant | ast.BinOp | ast.Call | ast.Name | ast.Attribute):
            for size in head_sizes(code, node):
                yield code.put(node, (root if divides else inverse_root)(code, size), "scale")
    if isinstance(above, ast.Assign) and above.value is node and SCALE.search(dotted(above.targets[0])):
        for size in head_sizes(code, node):
            yield code.put(node, inverse_root(code, size), "scale")
            yield code.put(node, root(code, size), "scale")


def existing(code: Code, node: ast.AST) -> list[str]:
    """Variables and attributes that hold a scale already."""
    return [name for name in (*bound(code, node), *attributes(code, node)) if SCALE.search(name)]


def scaled(code: Code, node: ast.AST) -> Iterator[str]:
    """An expression that is scaled, in every way that the file suggests."""
    inner = code.operand(node)
    for name in existing(code, node):
        yield f"{inner} * {name}"
        yield f"{inner} / {name}"
    for size in head_sizes(code, node):
        yield f"{inner} / {root(code, size)}"


def missing(code: Code, node: ast.AST) -> Iterator[Change]:
    """The scale on scores that have none."""
    if scores_at(code, node):
        for new in scaled(code, node):
            yield code.put(node, new, "scaled")


def moved(code: Code, node: ast.AST) -> Iterator[Change]:
    """The scale on the scores in the place of one on the weights or the context."""
    for factor, rest in _factors(code, node):
        for scores in ast.walk(code.function_of(node)):
            if scores is not rest and scores_at(code, scores) and not _inside(code, scores, node):
                op = "/" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else "*"
                new = f"{code.operand(scores)} {op} {code.operand(factor)}"
                yield Change((code.edit(node, code.of(rest)), code.edit(scores, new)), "")
            if _inside(code, scores, node) and scores_at(code, scores):
                op = "/" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else "*"
                start, end = code.span(node)
                text, inner = code.of(rest), code.edit(scores, f"{code.operand(scores)} {op} {code.operand(factor)}")
                offset = code.span(rest)[0]
                text = text[: inner.start - offset] + inner.new + text[inner.end - offset :]
                yield Change((code.edit(node, text)._replace(start=start, end=end),), "")
    yield from _augmented(code, node)


def _augmented(code: Code, node: ast.AST) -> Iterator[Change]:
    """The scale moved from a statement of its own, ``weights /= scale``, to the scores."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
        op = "/" if isinstance(node.op, ast.Div) else "*"
        for scores in ast.walk(code.function_of(node)):
            if scores_at(code, scores):
                new = f"{code.operand(scores)} {op} {code.operand(node.value)}"
                yield Change((code.without(node), code.edit(scores, new)), "")


def _inside(code: Code, node: ast.AST, outer: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(outer))


def _factors(code: Code, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A factor on weights or on a context, and what it is a factor of."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        if not weights_at(code, node) and not weights_at(code, node.left) and not _behind_softmax(code, node):
            return
        yield node.right, node.left
        if isinstance(node.op, ast.Mult):
            yield node.left, node.right


def _behind_softmax(code: Code, node: ast.AST) -> bool:
    function = code.function_of(node)
    return any(weights_at(code, inner) and code.span(inner)[0] < code.span(node)[1] for inner in ast.walk(function))
