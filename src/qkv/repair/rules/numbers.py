"""Edits of numbers: one more, one less, the other sign; and the diagonals of triangles."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit, integer, number
from qkv.repair.scope import AXIS_SIZE, is_size

SMALLEST_KNOWN = 4
"""Integers below this are axes and places, and no constants of an attention."""

TRIANGLES = ("tril", "triu", "tri")


def one_off(code: Code, node: ast.AST) -> Iterator[Change]:
    """An integer one larger or smaller, or with the other sign."""
    above = code.parents.get(node)
    old = integer(node) if isinstance(node, ast.expr) else None
    if old is None or (isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.USub)):
        return
    for new in dict.fromkeys((old + 1, old - 1, -old)):
        if new != old:
            other = _left_alone(node, above, new)
            whole, text = (node, str(new)) if above is None or other is None else (above, code.of(other))
            yield code.put(whole, text, f"{old} to {new}")


def _left_alone(node: ast.AST, above: ast.AST | None, new: int) -> ast.expr | None:
    """What is left of a product with 1, or a sum with 0: the other operand; None for anything else."""
    if not isinstance(above, ast.BinOp):
        return None
    neutral = {ast.Mult: 1, ast.Div: 1, ast.FloorDiv: 1, ast.Add: 0, ast.Sub: 0}.get(type(above.op))
    if new != neutral:
        return None
    if above.right is node:
        return above.left
    return above.right if isinstance(above.op, ast.Mult | ast.Add) else None


def known(code: Code, node: ast.AST) -> Iterator[Change]:
    """A number of the spec for another one: the base of rope, the window, the softcap."""
    above = code.parents.get(node)
    old = number(node) if isinstance(node, ast.expr) else None
    exponent = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow) and above.right is node
    if (
        old is None
        or exponent
        or isinstance(above, ast.UnaryOp)
        or (isinstance(old, int) and abs(old) < SMALLEST_KNOWN)
    ):
        return
    for new in code.known:
        if new != old:
            yield code.put(
                node, f"{new:.1f}" if isinstance(node, ast.Constant) and "." in code.of(node) else f"{new:g}", "known"
            )


def power(code: Code, node: ast.AST) -> Iterator[Change]:
    """The other sign of an exponent, ``d ** -0.5`` for ``d ** 0.5``; and the root of a size for another power of it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        old = number(node.right)
        if old is not None:
            roots = (-0.5, 0.5) if old < 0 else (0.5, -0.5)
            for new in (-old, *(roots if is_size(dotted(node.left)) or AXIS_SIZE.search(code.of(node.left)) else ())):
                if new != old:
                    yield Change((Edit(*code.span(node.right), f"{new:g}"),), f"** {new:g}")
        elif isinstance(node.right, ast.UnaryOp):
            yield code.put(node.right, code.of(node.right.operand), "** +")
        else:
            yield code.put(node.right, f"-{code.operand(node.right)}", "** -")


def one_more(code: Code, node: ast.AST) -> Iterator[Change]:
    """One added to the end of a range or to a side of a comparison, or taken from it."""
    bounds: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        bounds = list(node.comparators)
    elif isinstance(node, ast.Slice):
        bounds = [bound for bound in (node.lower, node.upper) if bound is not None]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.BinOp):
        bounds = [node.value]
    elif called(node) in ("range", "arange", "max", "min"):
        assert isinstance(node, ast.Call)
        bounds = list(node.args)
    for bound in bounds:
        if not isinstance(bound, ast.Constant):
            yield code.put(bound, f"{code.of(bound)} + 1", "+ 1")
            yield code.put(bound, f"{code.of(bound)} - 1", "- 1")


def diagonal(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another diagonal for a triangle, the other triangle, or the corner that fewer queries than keys need."""
    name = called(node)
    if name not in TRIANGLES:
        return
    assert isinstance(node, ast.Call)
    other = {"tril": "triu", "triu": "tril"}.get(name)
    end = code.span(node.func)[1]
    renamed = (Edit(end - len(name), end, other),) if other else ()
    corner = _corner(code, node)
    for new in ("1", "-1", "0", *([corner] if corner else ())):
        for edit in _with_diagonal(code, node, new):
            yield Change((edit,), f"diagonal {new}")
            if renamed:
                yield Change((*renamed, edit), f"{other} {new}")
    if renamed:
        yield Change(renamed, f"{other}")


def _with_diagonal(code: Code, node: ast.Call, new: str) -> Iterator[Edit]:
    """The edits that give a triangle a diagonal, or one more than it has."""
    given = _given(node)
    if given is None:
        if new != "0":
            end = code.span(node)[1] - 1
            yield Edit(end, end, f"{', ' if node.args or node.keywords else ''}{new}")
        return
    if code.of(given) != new:
        yield code.edit(given, new)
        if integer(given) is None and new != "0":
            yield code.edit(given, f"{code.of(given)} + {new}")
            yield code.edit(given, f"{new} + {code.of(given)}")
        elif new not in ("0", "1", "-1"):
            yield code.edit(given, f"{new} + {code.of(given)}" if integer(given) else new)


def _given(node: ast.Call) -> ast.expr | None:
    """The diagonal that is written there."""
    library = dotted(node.func).partition(".")[0] in ("torch", "np", "numpy", "jnp") or isinstance(node.func, ast.Name)
    behind = 2 if called(node) == "tri" else 1 if library else 0
    named = [keyword.value for keyword in node.keywords if keyword.arg in ("diagonal", "k")]
    return next(iter([*node.args[behind : behind + 1], *named]), None)


def _corner(code: Code, node: ast.Call) -> str:
    """The columns less the rows of the matrix that a triangle is cut from."""
    for inner in ast.walk(node):
        if called(inner) in ("ones", "full", "tri", "ones_like", "zeros"):
            assert isinstance(inner, ast.Call)
            args = inner.args[0].elts if inner.args and isinstance(inner.args[0], ast.Tuple) else inner.args
            if len(args) >= 2 and code.of(args[0]) != code.of(args[1]):
                return f"{code.operand(args[1])} - {code.operand(args[0])}"
    return ""
