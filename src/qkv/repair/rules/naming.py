"""Edits of names: another variable, layer or size of the same kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import dotted
from qkv.repair.code import Change, Code
from qkv.repair.scope import AXIS_SIZE, attributes, bound, functions_around, is_size, names_of, siblings, sizes


def _is_read(code: Code, node: ast.AST) -> bool:
    """Whether a node is a name that is read here, and no part of a longer one."""
    above = code.parents.get(node)
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and not isinstance(above, ast.Attribute)
        and bool(dotted(node))
    )


def sibling(code: Code, node: ast.AST) -> Iterator[Change]:
    """The key's, value's or query's for one of the others: ``self.W_value`` for ``self.W_key``."""
    name_of = dotted(node)
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and name_of:
        known = names_of([code.tree]) | set(bound(code, node)) | set(attributes(code, node))
        members = {name.rpartition(".")[2] for name in known if "." in name and "." in name_of}
        above = code.parents[node]
        itself = {dotted(target) for target in above.targets} if isinstance(above, ast.Assign) else set()
        for other in siblings(name_of):
            if (other in known or other.rpartition(".")[2] in members) and other not in itself:
                yield code.put(node, other, f"{name_of} to {other}")


def traded(code: Code, node: ast.AST) -> Iterator[Change]:
    """Two siblings that changed places in two assignments: their targets, or the layers that make them."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    assigned = [one for one in body if isinstance(one, ast.Assign)]
    for place, first in enumerate(assigned):
        for second in assigned[place + 1 :]:
            for one, other in zip(_roles(first.value), _roles(second.value), strict=False):
                if dotted(other) in siblings(dotted(one)):
                    yield Change((code.edit(one, dotted(other)), code.edit(other, dotted(one))), "trade")


def _roles(node: ast.AST) -> list[ast.expr]:
    """The names in an expression that have siblings, from the outside."""
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute) and dotted(inner) and any(siblings(dotted(inner)))
    ]


def unpacked(code: Code, node: ast.AST) -> Iterator[Change]:
    """The targets of an unpacking in another order: ``q, k, v = …`` for ``q, v, k = …``."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        parts = node.targets[0].elts
        for first in range(len(parts)):
            for second in range(first + 1, len(parts)):
                texts = code.of(parts[first]), code.of(parts[second])
                yield Change((code.edit(parts[first], texts[1]), code.edit(parts[second], texts[0])), "unpack")


def another(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another variable of the function for one that is read."""
    if isinstance(node, ast.Name) and _is_read(code, node):
        names = bound(code, node)
        if node.id in names:
            near = set(siblings(node.id))
            for name in names:
                if name != node.id and name not in near:
                    yield code.put(node, name, f"{node.id} to {name}")


def another_function(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another function of the file that takes as many arguments: ``hidden(n)`` for ``visible(n)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    functions = {one.name: len(one.args.args) for one in code.tree.body if isinstance(one, ast.FunctionDef)}
    inside = {getattr(one, "name", "") for one in functions_around(code, node)}
    for name, number in functions.items() if node.func.id in functions else ():
        if name not in {node.func.id, *inside} and number == functions[node.func.id]:
            yield code.put(node.func, name, f"{node.func.id} to {name}")


def another_size(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another size for a size: ``self.head_dim`` for ``self.embed_dim``."""
    written = isinstance(node, ast.Subscript | ast.Call) and bool(AXIS_SIZE.search(code.of(node)))
    named = _is_read(code, node) and is_size(dotted(node)) and getattr(code.parents[node], "func", None) is not node
    if written or named:
        for other in sizes(code, node):
            if other != code.of(node):
                yield code.put(node, other, f"size {code.of(node)} to {other}")
