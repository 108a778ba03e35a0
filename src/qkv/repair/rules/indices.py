"""Edits of what a loop counts: the head, the token or the row that is meant, where another one is taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from qkv.repair.code import Change, Code, integer
from qkv.repair.scope import bound

_SHARING = re.compile(r"group|rep|ratio|per_|share", re.IGNORECASE)
"""Names of how many query heads one head of keys and values serves."""

_HEADS = re.compile(r"head|kv|^[hg]q?$", re.IGNORECASE)
"""Names of how many heads there are."""


def counted(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another index in the place of one: ``values[j]`` for ``values[i]``, ``keys[h // group]`` for ``keys[h]``."""
    if not isinstance(node, ast.Subscript):
        return
    numbers, _ = _loops(code, node)
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        old = code.of(part)
        for new in _stretches(code, part, numbers) if isinstance(part, ast.Slice) else _others(code, part, numbers):
            if new != old:
                yield code.put(part, new, f"index {old} to {new}")


def row(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another row that a loop has taken out for one, and the loop's own row for one that was taken out before it."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return
    numbers, rows = _loops(code, node)
    for other in rows if node.id in rows else ():
        if other != node.id:
            yield code.put(node, other, f"row {node.id} to {other}")
    for taken in _taken_before(code, node) if numbers and node.id not in (*numbers, *rows) else ():
        for number in numbers:
            yield code.put(node, f"{code.of(taken.value)}[{number}]", f"row {node.id} to {number}")


def _others(code: Code, part: ast.expr, numbers: list[str]) -> Iterator[str]:
    """What an index may have to be: another loop's, all of a quotient, or a quotient that counts the shared heads."""
    used = [name for name in _names(part) if name in numbers or isinstance(part, ast.Name)]
    if integer(part) is not None or used:
        yield from numbers
    for name in dict.fromkeys([*used, *numbers]):
        for divisor in _divisors(code, part) if integer(part) is not None or used else ():
            yield f"{name} // {divisor}"


def _divisors(code: Code, node: ast.AST) -> Iterator[str]:
    """How many query heads share a head, as it may be written at a node."""
    names = bound(code, node)
    yield from (name for name in names if _SHARING.search(name))
    heads = [name for name in names if _HEADS.search(name)]
    shared = [name for name in heads if re.search(r"kv|group|^g$", name, re.IGNORECASE)]
    yield from (f"({every} // {few})" for few in shared for every in heads if every not in shared)


def _stretches(code: Code, part: ast.Slice, numbers: list[str]) -> Iterator[str]:
    """The stretches that end or begin at what a loop counts: all up to it, with or without itself, and all behind."""
    for name in numbers:
        if name in _names(part):
            yield from (f": {name} + 1", f"{name} + 1 :", f": {name}")


def _names(node: ast.AST) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def _loops(code: Code, node: ast.AST) -> tuple[list[str], list[str]]:
    """What the loops around a node count, and the rows that they take out; the innermost loop's first."""
    numbers, rows = list[str](), list[str]()
    above: ast.AST | None = node
    while above is not None:
        generators = getattr(above, "generators", [above] if isinstance(above, ast.For) else [])
        for loop in reversed(generators):
            counts, takes = _of_loop(loop)
            numbers, rows = [*numbers, *counts], [*rows, *takes]
        above = code.parents.get(above)
    return numbers, rows


def _of_loop(loop: ast.For | ast.comprehension) -> tuple[list[str], list[str]]:
    """What one loop counts, and what it takes out."""
    targets = [name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)]
    kind = getattr(getattr(loop.iter, "func", None), "id", "")
    if kind == "range":
        return targets, []
    return (targets[:1], targets[1:]) if kind == "enumerate" else ([], targets)


def _taken_before(code: Code, node: ast.Name) -> Iterator[ast.Subscript]:
    """The row by its number that a variable was given."""
    for statement in ast.walk(code.function_of(node)):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
            continue
        targets = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if node.id in targets and integer(statement.value.slice) is not None:
            yield statement.value
