"""The operation at which a candidate raised: its expression and its operands' shapes, from the frame it stands in.

The frame still has the values that the operation was given, so nothing needs to be recorded, in either framework.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from qkv.adapters.syntax import called
from qkv.adapters.values import is_tensor
from qkv.shapes.axes import Axes
from qkv.shapes.clash import Clash, Operand, explain_clash

_SPEAKS_OF_SHAPES = re.compile(r"shape|size|dimension|dim\b|axis|axes|broadcast|multipl|unpack|subscript|einsum", re.I)
"""How the messages of torch, NumPy and einops speak that are about shapes."""

_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.MatMult: "matmul", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
}  # fmt: skip

_NAMES = {"masked_fill_": "masked_fill", "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div", "multiply": "mul",
          "subtract": "sub", "divide": "div", "swapdims": "swapaxes", "baddbmm": "matmul"}  # fmt: skip
"""One name for several of the same kind."""

_PURE = {
    *("transpose", "permute", "swapaxes", "view", "reshape", "unsqueeze", "squeeze", "expand", "contiguous", "flatten"),
    *("t", "size", "float", "double", "half", "bool", "to", "type_as", "repeat_interleave", "clone", "sqrt", "len"),
}
"""Calls that only look at their arguments: they may be made again to learn an operand's shape."""

LONGEST = 100
"""Characters of an expression that are shown."""


def shape_clash(error: BaseException, own: Any, axes: Mapping[str, int]) -> str:
    """Why the operation that raised is impossible, in words; empty where shapes aren't why, or nothing is known.

    Args:
        error: what the candidate raised.
        own: whether a file is the candidate's, a function of its path.
        axes: size of each axis of the call, by name.
    """
    if not isinstance(error, RuntimeError | ValueError | IndexError | TypeError):
        return ""
    if not _SPEAKS_OF_SHAPES.search(f"{type(error).__name__} {error}"):
        return ""
    trace = _innermost(error.__traceback__, own)
    clash = None if trace is None else _clash_at(trace)
    return "" if clash is None else explain_clash(clash, Axes(axes))


def _innermost(trace: TracebackType | None, own: Any) -> TracebackType | None:
    found = None
    while trace is not None:
        if own(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    return found


def _clash_at(trace: TracebackType) -> Clash | None:
    node = _node_at(trace)
    if node is None:
        return None
    frame = trace.tb_frame
    operation, parts, numbers = _taken_apart(node, frame)
    operands = tuple(itertools.chain.from_iterable(_operands(part, frame) for part in parts))
    place = f"{Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
    target = ast.unparse(node.targets[0]).strip("()") if isinstance(node, ast.Assign) else ""
    code = " ".join(ast.unparse(node).split())
    if len(code) > LONGEST:
        code = f"{code[: LONGEST - 1]}…"
    return Clash(place, code, operation, operands, numbers, target)


def _node_at(trace: TracebackType) -> ast.AST | None:
    """The expression of the instruction that raised: the largest one that stands exactly there."""
    code = trace.tb_frame.f_code
    spot = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), None)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    wanted = spot and (spot[0], spot[1], spot[2], spot[3])
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.AugAssign) and wanted == (
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset,
        ):  # fmt: skip
            return _assigned_to(tree, node) if isinstance(node, ast.Tuple) else node
    return None


def _assigned_to(tree: ast.AST, targets: ast.Tuple) -> ast.AST:
    """The statement that takes something apart into these targets."""
    statements = (one for one in ast.walk(tree) if isinstance(one, ast.Assign) and targets in one.targets)
    return next(statements, targets)


def _taken_apart(node: ast.AST, frame: FrameType) -> tuple[str, list[ast.expr], tuple[int, ...]]:
    """The operation's name, the expressions of its operands and its whole numbers."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS.get(type(node.op), "other"), [node.left, node.right], ()
    if isinstance(node, ast.AugAssign):
        return _OPERATORS.get(type(node.op), "other"), [node.target, node.value], ()
    if isinstance(node, ast.Assign):
        taken = node.value
        return "unpacking", [taken.value if isinstance(taken, ast.Attribute) and taken.attr == "shape" else taken], ()
    if isinstance(node, ast.Call):
        return _called(node, frame)
    return "other", [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)], ()


def _called(node: ast.Call, frame: FrameType) -> tuple[str, list[ast.expr], tuple[int, ...]]:
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    function = node.func
    if hasattr(_value(function, frame), "weight"):
        weight = ast.Attribute(function, "weight", ast.Load())
        return "module", [*given, weight], ()
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "other")
    parts = [function.value, *given] if isinstance(function, ast.Attribute) else given
    return _NAMES.get(name, name), parts, tuple(_whole_numbers(given, frame))


def _whole_numbers(parts: list[ast.expr], frame: FrameType) -> Iterator[int]:
    for part in parts:
        value = _value(part.value if isinstance(part, ast.Starred) else part, frame)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, int) and not isinstance(one, bool):
                yield one


def _operands(part: ast.expr, frame: FrameType) -> Iterator[Operand]:
    """The arrays that an expression stands for: one, or those in a list or tuple."""
    value = _value(part, frame)
    if is_tensor(value) or _is_array(value):
        yield Operand(ast.unparse(part), tuple(value.shape))
    elif isinstance(part, ast.List | ast.Tuple):
        for element in part.elts:
            yield from _operands(element, frame)


def _is_layer(value: Any) -> bool:
    """Whether a value is one of torch's own layers that remembers nothing of its calls."""
    return type(value).__module__ == "torch.nn.modules.linear" and not value._forward_hooks


def _is_array(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "shape")


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What an expression gives in its frame, where working it out again does nothing else; None otherwise."""
    if not all(_is_pure(part, frame) for part in ast.walk(node)):
        return None
    try:
        return eval(ast.unparse(node), frame.f_globals, frame.f_locals)  # noqa: S307 - the candidate's own code
    except Exception:  # noqa: BLE001 - it may fail in any way, and then its shape isn't known
        return None


def _is_pure(node: ast.AST, frame: FrameType) -> bool:
    if isinstance(node, ast.Call):
        return called(node) in _PURE or _is_layer(_value(node.func, frame))
    return not isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda | ast.comprehension)
