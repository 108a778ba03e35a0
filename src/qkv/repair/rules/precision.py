"""Edits of precision and of chance: casts to short floats, and dropout that stays on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit
from qkv.repair.scope import attributes, class_of

SHORT = ("bfloat16", "float16", "half")


def cast(code: Code, node: ast.AST) -> Iterator[Change]:
    """float32 for a shorter float, and no cast where a method alone makes one."""
    match node:
        case ast.Attribute(value=ast.Name("torch" | "np" | "numpy" as library), attr=attr) if attr in SHORT:
            yield code.put(node, f"{library}.float32", "float32")
            yield code.put(node, f"{library}.float64", "float64")
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SHORT:
            end = code.span(node.func)[1]
            yield Change((Edit(end - len(attr), end, "float"),), "float32")
            yield code.put(node, code.of(inner), "no cast")
        case ast.Call(func=ast.Attribute(value=inner, attr="to" | "astype"), args=[dtype]):
            if code.of(dtype).rpartition(".")[2].strip("\"'") in SHORT:
                yield code.put(node, code.of(inner), "no cast")


def dropout(code: Code, node: ast.AST) -> Iterator[Change]:
    """Dropout in training alone."""
    if "dropout" not in code.text.lower() or not isinstance(node, ast.expr | ast.arguments):
        return
    inside = class_of(code, node) is not None
    if isinstance(node, ast.Call) and called(node) == "dropout" and inside:
        yield from _in_training(code, node)
        yield from _by_its_layer(code, node)
    if isinstance(node, ast.Call) and called(node) == "scaled_dot_product_attention":
        for keyword in node.keywords:
            if keyword.arg == "dropout_p":
                yield code.put(keyword.value, f"{code.of(keyword.value)} if self.training else 0.0", "in training")
    if isinstance(node, ast.Constant) and node.value is True:
        yield code.put(node, "self.training" if inside else "False", "in training")
    above = code.parents.get(node)
    if inside and isinstance(above, ast.Assign) and "drop" in code.of(node).lower() and isinstance(node, ast.Attribute):
        yield code.put(node, f"{code.of(node)} if self.training else 0.0", "in training")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and called(node.func) == "Dropout":
        yield from _by_its_layer(code, node)


def _in_training(code: Code, node: ast.Call) -> Iterator[Change]:
    names = {keyword.arg: keyword for keyword in node.keywords}
    end = code.span(node)[1] - 1
    if "training" in names:
        yield code.put(names["training"].value, "self.training", "in training")
    elif len(node.args) == 3:
        yield code.put(node.args[2], "self.training", "in training")
    elif dotted(node.func).rpartition(".")[0] in ("F", "nn.functional", "torch.nn.functional"):
        yield Change((Edit(end, end, ", training=self.training"),), "in training")
    elif node.args and len(node.args) == 2:
        yield Change((Edit(end, end, ", self.training"),), "in training")


def _by_its_layer(code: Code, node: ast.Call) -> Iterator[Change]:
    """The layer that holds the probability, called: ``self.dropout(x)``, or the function that was handed over."""
    if not node.args:
        return
    held = [name for name in attributes(code, node) if "drop" in name.lower()]
    held += [code.of(part.value) for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "p"]
    for name in dict.fromkeys(held):
        yield code.put(node, f"{name}({code.of(node.args[0])})", "its layer")
