"""Edits of operators: another sign, another comparison, operands the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from qkv.adapters.syntax import called
from qkv.repair.code import Change, Code, number
from qkv.repair.scope import is_mask
from qkv.vocabulary import HIDDEN_BELOW

SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Mod: ("%", "//"),
    ast.FloorDiv: ("//", "%"),
}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
ORDERED = ("<", "<=", ">", ">=")

COMPLEX = re.compile(r"\b(view_as_complex|polar|1j|complex(64|128)?)\b")
"""What stands in a file that turns by complex numbers."""


def binary(code: Code, node: ast.AST) -> Iterator[Change]:
    """The opposite operator: ``-`` for ``+``, ``/`` for ``*``, ``&`` for ``|``."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED and not _hides(node):
        old, new = SWAPPED[type(node.op)]
        yield Change((code.operator(node.left, node.right, old, new),), f"{old} to {new}")


def rotation(code: Code, node: ast.AST) -> Iterator[Change]:
    """Both signs of a rotation turned round that is written out: ``a * cos - b * sin`` and ``b * cos + a * sin``."""
    if not isinstance(node, ast.FunctionDef):
        return
    sums = [one for one in ast.walk(node) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add | ast.Sub)]
    turned = [one for one in sums if _is_times(one.left) and _is_times(one.right)]
    if len(turned) == 2 and type(turned[0].op) is not type(turned[1].op):
        yield Change(tuple(code.operator(one.left, one.right, *SWAPPED[type(one.op)]) for one in turned), "rotation")


def unconjugated(code: Code, node: ast.AST) -> Iterator[Change]:
    """What is conjugated, as it is."""
    if called(node) == "conj" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.args[0] if node.args else node.func.value
        yield code.put(node, code.of(inner), "no conj")


def conjugated(code: Code, node: ast.AST) -> Iterator[Change]:
    """A factor conjugated, where a file turns by complex numbers."""
    above = code.parents.get(node)
    is_factor = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult) and isinstance(node, ast.expr)
    if is_factor and isinstance(node, ast.Name | ast.Attribute) and COMPLEX.search(code.text):
        yield code.put(node, f"{code.of(node)}.conj()", "conj")


def _is_times(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _hides(node: ast.BinOp) -> bool:
    """Whether a large negative number is added under a mask: taken away it would hide all others."""
    numbers = [number(inner) or 0.0 for inner in ast.walk(node.right) if isinstance(inner, ast.UnaryOp)]
    return isinstance(node.op, ast.Add) and min(numbers, default=0.0) <= HIDDEN_BELOW


def compared(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another comparison: ``<=`` for ``<``; equal for unequal."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        old = COMPARED[type(node.ops[0])]
        for new in ORDERED if old in ORDERED else ("==", "!=", ">=", "<="):
            if new != old:
                yield Change((code.operator(node.left, node.comparators[0], old, new),), f"{old} to {new}")


def exchanged(code: Code, node: ast.AST) -> Iterator[Change]:
    """The operands of a product or a difference, or two arguments of a call, the other way round."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult | ast.Sub | ast.Div):
        pairs = [(node.left, node.right)]
    elif isinstance(node, ast.Call) and called(node) not in ("transpose", "swapaxes"):
        pairs = list(zip(node.args, node.args[1:], strict=False))
    elif isinstance(node, ast.Tuple | ast.List):
        pairs = list(zip(node.elts, node.elts[1:], strict=False))
    for first, second in pairs:
        if code.of(first) != code.of(second):
            edits = code.edit(first, code.of(second)), code.edit(second, code.of(first))
            yield Change(edits, "exchange")
            yield from _inner_names(code, first, second)


def _inner_names(code: Code, first: ast.expr, second: ast.expr) -> Iterator[Change]:
    """The names inside of two operands exchanged, what is done with each left where it is: ``q @ k.T``."""
    inner = [_named(first), _named(second)]
    if None not in inner and (inner[0] is not first or inner[1] is not second):
        one, other = inner
        assert one is not None
        assert other is not None
        if code.of(one) != code.of(other):
            yield Change((code.edit(one, code.of(other)), code.edit(other, code.of(one))), "exchange inside")


def _named(node: ast.expr) -> ast.Name | None:
    """The variable that an expression starts from: ``k`` for ``k.transpose(2, 3)``."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        elif isinstance(node, ast.BinOp):
            node = node.left
        else:
            return None
    return node


def negated(code: Code, node: ast.AST) -> Iterator[Change]:
    """A minus or a ``~`` taken away, given, or moved to the other of two."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield code.put(node, code.of(node.operand), f"no {type(node.op).__name__}")
    if isinstance(node, ast.Call) and called(node) == "logical_not":
        inner = node.args[0] if node.args else getattr(node.func, "value", node)
        yield code.put(node, code.of(inner), "no logical_not")
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
        signs = [isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) for part in node.elts]
        if signs[0] != signs[1]:
            edits = [
                code.edit(part, code.of(part.operand) if isinstance(part, ast.UnaryOp) else f"-{code.operand(part)}")
                for part in node.elts
            ]
            yield Change(tuple(edits), "minus on the other")


def inverted(code: Code, node: ast.AST) -> Iterator[Change]:
    """A mask the other way round: ``~mask`` for ``mask``, at one place."""
    above = code.parents.get(node)
    inside = isinstance(above, ast.UnaryOp | ast.Attribute | ast.Compare) or (
        isinstance(above, ast.Subscript) and above.value is node
    )
    is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and getattr(above, "func", None) is not node
    if isinstance(node, ast.expr) and not inside and is_read and is_mask(code, node):
        yield code.put(node, f"~{code.operand(node)}", "~")
        if not isinstance(node, ast.Compare):
            yield code.put(node, f"{code.operand(node)} == 0", "== 0")
