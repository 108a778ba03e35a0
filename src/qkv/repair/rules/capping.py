"""Edits of the softcap: put on scores that have none, or made whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from qkv.adapters.syntax import called
from qkv.repair.code import Change, Code
from qkv.repair.rules.anchors import scores_at
from qkv.repair.scope import attributes, bound

CAP = re.compile(r"cap(ping|ped)?$|softcap|^c$")


def _caps(code: Code, node: ast.AST) -> list[str]:
    """What the cap may be written as there."""
    names = [name for name in (*bound(code, node), *attributes(code, node)) if CAP.search(name)]
    return names or [f"{number:g}" for number in code.known]


def _tanh(code: Code, inner: str) -> str:
    return f"{'torch' if code.uses_torch else 'np'}.tanh({inner})"


def missing(code: Code, node: ast.AST) -> Iterator[Change]:
    """The softcap on scores."""
    if scores_at(code, node):
        for cap in _caps(code, node):
            yield code.put(node, f"{cap} * {_tanh(code, f'{code.operand(node)} / {cap}')}", "capped")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        for cap in _caps(code, node) if _is_scaling(node.value) else ():
            yield code.put(node.value, f"{cap} * {_tanh(code, f'({code.of(node.value)}) / {cap}')}", "capped")


def _is_scaling(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)


def incomplete(code: Code, node: ast.AST) -> Iterator[Change]:
    """The part of ``cap * tanh(scores / cap)`` that is missing."""
    for cap in _caps(code, node):
        if called(node) == "tanh" and isinstance(node, ast.Call):
            yield code.put(node, f"{cap} * {code.of(node)}", "times the cap")
            for arg in node.args:
                yield code.put(arg, f"{code.operand(arg)} / {cap}", "over the cap")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and code.of(node.right) == cap:
            yield code.put(node, _tanh(code, code.of(node)), "tanh")
