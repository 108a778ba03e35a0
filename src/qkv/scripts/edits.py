"""Edits of one expression of a script: what the user wrote stays, but for what is wrong in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from qkv.adapters.syntax import LOOSE, NESTING, called, parents_of

SUMS = frozenset({"sum", "nansum", "logsumexp", "mean"})
"""What takes an axis away, and keeps it where that is asked for."""

SOFTMAXES = frozenset({"softmax", "log_softmax"})

_LIBRARIES = ("torch", "np", "numpy", "F", "functional", "nn.functional", "torch.nn.functional", "special")
"""What functions are called on that take the array as their first argument."""

_Edit = tuple[int, int, str]


def over_keys_in(code: str, ndim: int, *, is_torch: bool, told: str = "") -> str:
    """The code with each softmax and each sum in it over the last axis, and each sum kept as an axis of length one.

    Args:
        code: an expression, or an assignment.
        ndim: how many axes the arrays in it have.
        is_torch: whether it computes in torch, whose words for that are others than NumPy's.
        told: a function of the user's own that is told its axis as a softmax is.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return code
    shaped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript | ast.Attribute)}
    edits = [
        edit
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in SUMS | SOFTMAXES | {told}
        for edit in _over_keys(node, ndim, shaped=id(node) in shaped, is_torch=is_torch)
    ]
    return _edited(code, edits)


def _edited(code: str, edits: Sequence[_Edit]) -> str:
    text = code.encode()  # columns are counted in bytes
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()


def _over_keys(node: ast.Call, ndim: int, *, shaped: bool, is_torch: bool) -> Iterator[_Edit]:
    name = called(node)
    words = {keyword.arg or "": keyword.value for keyword in node.keywords}
    method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in _LIBRARIES
    axis = words.get("dim", words.get("axis", next(iter(node.args[0 if method else 1 :]), None)))
    torchs = is_torch and "axis" not in words
    added = [] if axis is not None or name not in SUMS | SOFTMAXES else ["dim=-1" if torchs else "axis=-1"]
    number = None if axis is None else _number(axis)
    wrong = isinstance(axis, ast.Tuple) or (number is not None and number not in (-1, ndim - 1))
    if axis is not None and wrong:
        yield axis.col_offset, axis.end_col_offset or 0, "-1"
    if name in SUMS and not shaped and not {"keepdim", "keepdims"} & words.keys():
        added.append("keepdim=True" if torchs else "keepdims=True")
    if added:
        end = (node.end_col_offset or 0) - 1
        yield end, end, (", " if node.args or node.keywords else "") + ", ".join(added)


def with_number(code: str, old: float, new: str) -> str:
    """The code with other words in the place of the one number of that value; the same where there isn't just one."""
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.expr) and _number(node) == old]
    except SyntaxError:
        return code
    whole = [node for node in nodes if not any(node is not one and node in ast.walk(one) for one in nodes)]
    return _edited(code, [(whole[0].col_offset, whole[0].end_col_offset or 0, new)]) if len(whole) == 1 else code


def only_kept(code: str, changed: str) -> bool:
    """Whether a change of code does nothing but to keep the axis of its sums."""
    return changed != code and re.sub(r",? *keepdims?=True", "", changed) == code


def with_code(code: str, old: str, new: str) -> tuple[str, int]:
    """The code with one expression in the place of another, in brackets where it needs them; and how often that is.

    Args:
        code: an expression, or an assignment.
        old: a variable, or another expression.
        new: what stands there afterwards.
    """
    try:
        tree, wanted = ast.parse(code), ast.unparse(ast.parse(old, mode="eval"))
        loose = isinstance(ast.parse(new, mode="eval").body, LOOSE)
    except SyntaxError:
        return code, 0
    above = parents_of(tree)
    same = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and ast.unparse(node) == wanted]
    edits = []
    for node in same:
        start, end = node.col_offset, node.end_col_offset or 0
        bracketed, nested = _is_bracketed(code.encode(), node), isinstance(above[node], NESTING)
        if bracketed and nested and not loose:
            start, end = start - 1, end + 1  # the brackets were those of what stood there
        edits.append((start, end, f"({new})" if loose and nested and not bracketed else new))
    return _edited(code, edits), len(edits)


def turned_round(code: str) -> str:
    """The code with the condition of its ``masked_fill``, ``where`` or assignment turned round, if it has one."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return code
    for node in ast.walk(tree):
        condition: ast.expr | None = None
        if called(node) in ("where", "masked_fill", "masked_fill_") and isinstance(node, ast.Call):
            condition = next(iter(node.args), None)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            condition = node.slice
        if condition is not None:
            return _edited(code, [(condition.col_offset, condition.end_col_offset or 0, _not(condition))])
    return code


def _not(condition: ast.expr) -> str:
    """The opposite of a condition on arrays."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Invert):
        return ast.unparse(condition.operand)
    if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Eq | ast.NotEq):
        opposite = ast.NotEq() if isinstance(condition.ops[0], ast.Eq) else ast.Eq()
        return ast.unparse(ast.Compare(condition.left, [opposite], condition.comparators))
    written = ast.unparse(condition)
    return f"~({written})" if isinstance(condition, LOOSE) else f"~{written}"


def with_brackets(code: str) -> str:
    """An expression in brackets, where an operator or a method behind it would tear it apart."""
    try:
        return f"({code})" if isinstance(ast.parse(code, mode="eval").body, LOOSE) else code
    except SyntaxError:
        return code


def without_brackets(code: str) -> str:
    """An expression without the brackets around all of it."""
    try:
        ast.parse(code[1:-1], mode="eval")
    except SyntaxError:
        return code
    return code[1:-1] if code.startswith("(") and code.endswith(")") else code


def _is_bracketed(code: bytes, node: ast.expr) -> bool:
    return code[: node.col_offset].endswith(b"(") and code[node.end_col_offset or 0 :].startswith(b")")


def _number(node: ast.expr) -> float | None:
    """The number that is written there: ``-1e9``, ``float("-inf")``; None for anything else."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1:
        node = node.args[0]
    try:
        value = float(ast.literal_eval(node))
    except (ValueError, TypeError):
        return None
    return value
