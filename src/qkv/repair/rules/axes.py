"""Edits of axes: the one that a softmax or a sum runs over, those that are transposed, and the places of new ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations

from qkv.adapters.syntax import called
from qkv.repair.code import Change, Code, integer

AXES = (-1, -2, 1, 2, 3, 0, -3)
"""Axes to try, the likeliest first."""

PAIRS = ((1, 2), (-2, -1), (2, 3), (-1, -2), (0, 1), (0, 2), (1, 3))
"""Pairs of axes to try."""

OVER_AN_AXIS = frozenset(
    [
        "softmax",
        "log_softmax",
        "sum",
        "mean",
        "max",
        "amax",
        "min",
        "norm",
        "var",
        "cat",
        "concat",
        "concatenate",
        "stack",
        "repeat_interleave",
        "repeat",
        "chunk",
        "split",
        "unbind",
        "unsqueeze",
        "expand_dims",
        "cumsum",
        "flip",
        "logsumexp",
        "array_split",
    ]
)
FROM_THE_TENSOR = ("softmax", "sum", "mean", "amax", "max", "unsqueeze", "unbind", "flip", "cumsum", "log_softmax")
"""Methods whose first argument is an axis."""


def axis(code: Code, node: ast.AST) -> Iterator[Change]:
    """Another axis for what runs over one: ``softmax(scores, dim=-2)``; all that run over the same one together."""
    if called(node) not in OVER_AN_AXIS:
        return
    assert isinstance(node, ast.Call)
    values = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")]
    places = 0 if isinstance(node.func, ast.Attribute) and called(node) in FROM_THE_TENSOR else 1
    values += node.args[places : places + 2]
    for value in values:
        old = integer(value)
        for new in AXES if old is not None else ():
            if new != old:
                yield code.put(value, str(new), f"axis {old} to {new}")


def transposed(code: Code, node: ast.AST) -> Iterator[Change]:
    """Other axes for a transpose, and another order for a permute."""
    if called(node) not in ("transpose", "swapaxes", "permute"):
        return
    assert isinstance(node, ast.Call)
    axes = [arg for arg in node.args if integer(arg) is not None]
    order = [integer(arg) for arg in axes]
    if len(axes) == 2:
        for first, second in PAIRS:
            if {first, second} != set(order):
                edits = code.edit(axes[0], str(first)), code.edit(axes[1], str(second))
                yield Change(edits, f"transpose {order} to {first, second}")
    for first, second in combinations(range(len(axes)), 2) if len(axes) > 2 else ():
        edits = code.edit(axes[first], str(order[second])), code.edit(axes[second], str(order[first]))
        yield Change(edits, f"permute {first, second}")


def new_axis(code: Code, node: ast.AST) -> Iterator[Change]:
    """A new axis at another place: ``mask[:, None, None, :]`` for ``mask[:, None, :, None]``."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return
    parts = node.slice.elts
    empty = [isinstance(part, ast.Constant) and part.value is None for part in parts]
    for first, second in combinations(range(len(parts)), 2):
        if empty[first] != empty[second]:
            texts = code.of(parts[first]), code.of(parts[second])
            edits = code.edit(parts[first], texts[1]), code.edit(parts[second], texts[0])
            yield Change(edits, f"new axis {first, second}")


def subscripts(code: Code, node: ast.AST) -> Iterator[Change]:
    """All of an axis for a part of it, another constant index, and slices in halves or in steps of two."""
    if not isinstance(node, ast.Subscript):
        return
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in parts:
        if isinstance(part, ast.Slice) and (part.lower or part.upper):
            yield code.put(part, ":", f"all of {code.of(part)}")
        old = integer(part)
        for new in (-1, 0, 1, 2, -2) if old is not None else ():
            if new != old:
                yield code.put(part, str(new), f"index {old} to {new}")
