"""Spelling: advice as a candidate would write it, in its own framework and with its own order of axes.

The catalogue's advice is written for torch and ``(batch, head, token, dim)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

HEADS_LAST = ("BTHD", "THD")
"""Orders in which a token's heads stand behind it, so that a product of two arrays is not one of heads."""

_WORDS = {"B": "batch", "H": "head", "T": "token", "D": "dim"}


def spelled(advice: str, framework: str, layout: str = "") -> str:
    """The advice in the words of a framework, for arrays of this layout; what has no other spelling stays as it is.

    Args:
        advice: lines of code, each with or without a comment.
        framework: ``torch`` or ``numpy``.
        layout: order of the axes of the candidate's query, key and value; empty where it takes none.
    """
    if layout and _WORDS.keys() >= {*layout}:  # and not that of a module's tokens
        advice = advice.replace("is (batch, head, token, dim)", f"is ({', '.join(_WORDS[axis] for axis in layout)})")
    rules: list[ast.NodeTransformer] = [_Axes(layout)] if layout in HEADS_LAST else []
    rules += [_InNumPy()] if framework == "numpy" else []
    return "\n".join(_line(line, rules) for line in advice.split("\n"))


def _line(line: str, rules: Sequence[ast.NodeTransformer]) -> str:
    code, mark, comment = line.partition("  #")
    indent = code[: len(code) - len(code.lstrip())]
    rest = "\n    pass" if code.rstrip().endswith(":") else ""
    try:
        tree = ast.parse(code.strip() + rest)
    except SyntaxError:
        return line
    before = ast.dump(tree)
    for rule in rules:
        tree = rule.visit(tree)
    if ast.dump(tree) == before:
        return line
    if any(isinstance(rule, _InNumPy) for rule in rules):
        comment = re.sub(r"\btorch\.(\w+)", lambda one: _FUNCTIONS.get(one[1], f"np.{one[1]}"), comment)
    return indent + ast.unparse(ast.fix_missing_locations(tree)).removesuffix(rest) + mark + comment


class _Axes(ast.NodeTransformer):
    def __init__(self, layout: str) -> None:
        self.axes = layout.lower()
        self.heads = layout.index("H")

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Products of queries and keys, as a sum over channels."""
        match self.generic_visit(node):
            case ast.BinOp(
                left=ast.Name(id="query"),
                op=ast.MatMult(),
                right=ast.Call(func=ast.Attribute(value=key, attr="transpose")),
            ):
                keys, scores = self.axes.replace("t", "s"), "bhts" if "b" in self.axes else "hts"
                product = ast.unparse(key)
                return ast.parse(f"torch.einsum('{self.axes},{keys}->{scores}', query, {product})", mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The axis along which heads are repeated."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "repeat_interleave":
            for one in node.keywords:
                one.value = ast.Constant(self.heads) if ast.unparse(one) == "dim=1" else one.value
        return node


_METHODS: dict[str, Callable[[str, list[str], str], str]] = {
    "transpose": lambda own, args, named: f"{own}.swapaxes({', '.join(args)})",
    "view": lambda own, args, named: f"{own}.reshape({', '.join(args)})",
    "clamp": lambda own, args, named: f"{own}.clip({', '.join(args)})",
    "repeat_interleave": lambda own, args, named: f"{own}.repeat({', '.join(args)}{named})",
    "float": lambda own, args, named: f"{own}.astype(np.float64)",
    "bool": lambda own, args, named: f"{own}.astype(bool)",
    "to": lambda own, args, named: f"{own}.astype({', '.join(args)})",
    "abs": lambda own, args, named: f"np.abs({own})",
    "contiguous": lambda own, args, named: f"np.ascontiguousarray({own})",
    "tril": lambda own, args, named: f"np.tril({', '.join([own, *args])}{named.replace('diagonal', 'k')})",
    "triu": lambda own, args, named: f"np.triu({', '.join([own, *args])}{named.replace('diagonal', 'k')})",
    "chunk": lambda own, args, named: f"np.split({', '.join([own, *args])}{named})",
    "unbind": lambda own, args, named: f"np.moveaxis({own}, {args[0]}, 0)",
    "pow": lambda own, args, named: f"{own} ** {args[0]}",
    "expand_as": lambda own, args, named: f"np.broadcast_to({own}, {args[0]}.shape)",
    "masked_fill": lambda own, args, named: _chosen(args[0], args[1], own),
}
"""How a method of torch's tensors is written for NumPy's arrays: of the array, the arguments, and those with names."""


def _chosen(hidden: str, fill: str, own: str) -> str:
    return f"np.where({hidden[1:]}, {own}, {fill})" if hidden.startswith("~") else f"np.where({hidden}, {fill}, {own})"


_FUNCTIONS = {"cat": "np.concatenate", "softmax": "softmax", "clamp": "np.clip", "rsqrt": "1 / np.sqrt"}


class _InNumPy(ast.NodeTransformer):
    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """NumPy's names for the arguments that say an axis."""
        node.arg = {"dim": "axis", "keepdim": "keepdims"}.get(node.arg or "", node.arg)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """NumPy's functions and methods."""
        self.generic_visit(node)
        if ast.unparse(node) == "float('-inf')":
            return ast.parse("-np.inf", mode="eval").body
        if not isinstance(node.func, ast.Attribute):
            return node
        own, name = ast.unparse(node.func.value), node.func.attr
        own = f"({own})" if isinstance(node.func.value, ast.BinOp) else own
        args, named = [ast.unparse(one) for one in node.args], "".join(f", {ast.unparse(one)}" for one in node.keywords)
        if own in ("torch", "np") and name in _FUNCTIONS:
            return ast.parse(f"{_FUNCTIONS[name]}({', '.join(args)}{named})", mode="eval").body
        if own in ("torch", "np") and name == "ones":
            node.args = [ast.Tuple(node.args, ast.Load())]
        if own not in ("torch", "np", "self") and name in _METHODS:
            return ast.parse(_METHODS[name](own, args, named), mode="eval").body
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """What only torch has."""
        return node if node.attr == "nn" else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """NumPy itself."""
        return ast.Name("np" if node.id == "torch" else node.id, node.ctx)
