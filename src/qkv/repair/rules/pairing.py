"""Edits of rope's pairs: channels turned with the one half a head away, ``halves``, or with their neighbours."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit

Way = Callable[[Code, ast.AST], Edit | None]


def one_place(code: Code, node: ast.AST) -> Iterator[Change]:
    """One table or one tensor paired the other way."""
    for way in (_to_halves, _to_neighbours):
        edit = way(code, node)
        if edit is not None:
            yield Change((edit,), way.__name__)


def everywhere(code: Code, node: ast.AST) -> Iterator[Change]:
    """All tables and tensors of the file paired the other way."""
    if _to_halves(code, node) is None and _to_neighbours(code, node) is None:
        return
    for way in (_to_halves, _to_neighbours):
        found = [edit for one in ast.walk(code.tree) if (edit := way(code, one)) is not None]
        yield Change(tuple(found), "")


def _to_halves(code: Code, node: ast.AST) -> Edit | None:
    """The edit that pairs the two halves where neighbours are paired."""
    if isinstance(node, ast.Subscript) and (match := re.search(r"^(.*)\[\.\.\., ([01]?)::2\]$", code.of(node))):
        name, start = match[1], match[2]
        half = f"{name}.shape[-1] // 2"
        return code.edit(node, f"{name}[..., {half} :]" if start == "1" else f"{name}[..., : {half}]")
    if called(node) == "flatten" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value
        if called(inner) == "stack" and isinstance(inner, ast.Call):
            return code.edit(node, code.of(inner).replace("stack", "cat" if code.uses_torch else "concatenate", 1))
    if (
        called(node) in ("repeat_interleave", "repeat")
        and isinstance(node, ast.Call)
        and re.search(r"\b2, (dim=|axis=)?-1\)$", code.of(node))
    ):
        of_library = dotted(getattr(node.func, "value", node)) in ("torch", "np", "numpy")
        text = code.of(node.args[0] if of_library else node.func.value)  # type: ignore[attr-defined]
        join = "torch.cat" if code.uses_torch else "np.concatenate"
        return code.edit(node, f"{join}(({text}, {text}), {'dim' if code.uses_torch else 'axis'}=-1)")
    return None


def _to_neighbours(code: Code, node: ast.AST) -> Edit | None:
    """The edit that pairs neighbours where the two halves are paired."""
    text = code.of(node) if isinstance(node, ast.expr) else ""
    half = r"(\w+\.shape\[-1\] // 2|half|\w+ // 2)"
    if match := re.search(rf"^(\w+)\[\.\.\., ?(: ?{half}|{half} ?:)\]$", text):
        return code.edit(node, f"{match[1]}[..., {'0' if match[2].startswith(':') else '1'}::2]")
    if match := re.search(rf"^(\w+)\.(chunk\(2|split\({half}), (dim=|axis=)?-1\)$", text):
        return code.edit(node, f"{match[1]}[..., 0::2], {match[1]}[..., 1::2]")
    if called(node) in ("cat", "concat", "concatenate") and isinstance(node, ast.Call) and node.args:
        parts = getattr(node.args[0], "elts", [])
        if len(parts) == 2 and code.of(parts[0]) == code.of(parts[1]):
            axis = "dim" if code.uses_torch else "axis"
            repeated = "repeat_interleave" if code.uses_torch else "repeat"
            return code.edit(node, f"{code.operand(parts[0])}.{repeated}(2, {axis}=-1)")
        if len(parts) == 2:
            name = text.replace(called(node), "stack", 1)
            return code.edit(node, f"{name}.flatten(-2)" if code.uses_torch else f"{name}.reshape({_shape_of(code)})")
    return None


def _shape_of(code: Code) -> str:
    return "x.shape" if "x.shape" in code.text else "-1"
