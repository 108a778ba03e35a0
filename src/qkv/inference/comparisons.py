"""Comparisons by which a source hides later keys: ``cols > rows``, ``i - j >= 0``, ``for j in range(i + 1)``.

One counts only where what it gives goes on to hide something, and where no argument decides whether it is made.
"""

from __future__ import annotations

import ast
import re
from textwrap import dedent

from qkv.adapters.names import call_role_of
from qkv.inference.positions import Positions, called, names_in

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CALLED_SO = frozenset({"lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal"})
_LOWEST = re.compile(r"\binf\b|finfo|-\s*\d+(\.\d*)?e\+?\d|-\s*\d{4,}|neg|\bmin\b|lowest|mask_value", re.IGNORECASE)
_USED = re.compile(r"mask|softmax|attention|attend|sdpa", re.IGNORECASE)
_PASSED_ON = re.compile(
    r"to|bool|float|int|type|astype|tensor|array|asarray|(logical|bitwise)_(and|or|not)|view|reshape|unsqueeze|"
    r"expand(_as|_dims)?|broadcast_to|repeat"
)
"""Calls that give a truth on as it is, or joined with others."""


def comparison_said(source: str) -> str | None:
    """The comparison that hides later keys, as it is written; None where none is sure to."""
    try:
        tree = ast.parse(dedent(source))
    except SyntaxError:
        return None
    text = _Comparisons(tree)
    for node in ast.walk(tree):
        if text.orders(node) and not text.is_asked_for(node) and text.hides(node):
            return ast.unparse(node.iter if isinstance(node, ast.For | ast.comprehension) else node)
    return None


class _Comparisons:
    def __init__(self, tree: ast.AST) -> None:
        self.positions = Positions(tree)
        self.above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.loads: dict[str, list[ast.AST]] = {}
        self.followed: set[str] = set()
        arguments: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.loads.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.arg):
                arguments.add(node.arg)
        self.switches = {one for one in arguments if call_role_of(one) not in ("query", "key", "value", "x")}

    def orders(self, node: ast.AST) -> bool:
        """Whether it holds a key's position against a query's; or a loop, or a cut, ends where a query stands."""
        kind = self.positions.kind
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = zip([left, *others], ops, others, strict=False)
                return any(isinstance(op, _ORDERS) and _is_order(kind(one), kind(two)) for one, op, two in sides)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="outer"), args=[one, other]):
                return name in _CALLED_SO and {kind(one), kind(other)} == {"row"}
            case ast.Call(args=[*before, last]) if called(node) in _CALLED_SO and isinstance(node.func, ast.Attribute):
                return _is_order(kind(before[0] if before else node.func.value), kind(last))
            case (ast.For(iter=ast.Call(args=args) as source, target=ast.Name(id=name))
                  | ast.comprehension(iter=ast.Call(args=args) as source, target=ast.Name(id=name))):  # fmt: skip
                counts = called(source) == "range" and len(args) in (1, 2) and kind(ast.Name(name)) == "key"
                return counts and kind(args[-1]) == "query"
            case ast.Subscript(value=value, slice=at):
                cuts = [one for one in (at.elts if isinstance(at, ast.Tuple) else [at]) if isinstance(one, ast.Slice)]
                ends = any(
                    one.upper is not None and kind(one.upper) == "query"
                    and (one.lower is None or kind(one.lower) != "query")
                    for one in cuts
                )  # fmt: skip
                return ends and self.positions.roles(value) <= {"key", "value"} and bool(self.positions.roles(value))
        return False

    def is_asked_for(self, node: ast.AST) -> bool:
        """Whether an argument or a setting decides if it is made at all."""
        while (parent := self.above.get(node)) is not None:
            if isinstance(parent, ast.If | ast.IfExp) and node is not parent.test:
                test = {one.attr for one in ast.walk(parent.test) if isinstance(one, ast.Attribute)}
                if names_in(parent.test) & {*self.switches, "self"} and "shape" not in test:
                    return True
            node = parent
        return False

    def hides(self, node: ast.AST) -> bool:
        """Whether what an expression gives goes on to hide something."""
        if isinstance(node, ast.For | ast.comprehension | ast.Subscript):
            return True
        while (parent := self.above.get(node)) is not None:
            match parent:
                case ast.BoolOp() | ast.UnaryOp() | ast.Compare() | ast.Attribute() | ast.Tuple():
                    pass
                case ast.BinOp(left=left, right=right):
                    if _is_lowest(right if node is left else left):
                        return True
                case ast.Subscript(slice=at) if node is at:
                    return self._fills(parent)
                case ast.Subscript():
                    pass
                case ast.keyword(arg=name):
                    return call_role_of(name or "") == "mask" or bool(_USED.search(name or ""))
                case ast.Call():
                    passed_on = self._is_given(parent, node)
                    if passed_on is not None:
                        return passed_on
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.NamedExpr(target=ast.Name(id=name)):
                    return self._is_used(name)
                case _:
                    return _decides(parent, node)
            node = parent
        return False

    def _fills(self, chosen: ast.Subscript) -> bool:
        """Whether what is chosen is filled with the lowest number: ``scores[hidden] = -inf``."""
        parent = self.above.get(chosen)
        return isinstance(parent, ast.Assign) and chosen in parent.targets and _is_lowest(parent.value)

    def _is_used(self, name: str) -> bool:
        if name in self.followed:
            return False
        self.followed.add(name)
        return any(self.hides(one) for one in self.loads.get(name, ()))

    def _is_given(self, call: ast.Call, node: ast.AST) -> bool | None:
        """Whether a call hides by what it is given; None where it hands that on."""
        name = called(call)
        if node is call.func or _PASSED_ON.fullmatch(name):
            return None
        if name == "where":
            others = [one for one in call.args if one is not node]
            of_weights = any("exp(" in ast.unparse(one) for one in others)
            return any(map(_is_lowest, others)) or (
                of_weights and any(ast.unparse(one) in ("0", "0.0") for one in others)
            )
        return name.startswith("masked_fill") or bool(_USED.search(name))


def _is_order(one: str | None, other: str | None) -> bool:
    return {one, other} in ({"query", "key"}, {"query", "row"}, {"distance", "length"})


def _is_lowest(node: ast.AST) -> bool:
    return bool(_LOWEST.search(ast.unparse(node)))


def _decides(parent: ast.AST, node: ast.AST) -> bool:
    """Whether a statement or a choice leaves keys out by a truth."""
    match parent:
        case ast.If(test=test, body=body) if node is test:
            done = [one for statement in body for one in ast.walk(statement)]
            return any(isinstance(one, ast.Continue | ast.Break) for one in done) or any(map(_is_lowest, body))
        case ast.IfExp(test=test, body=body, orelse=other) if node is test:
            return _is_lowest(body) or _is_lowest(other)
        case ast.comprehension(ifs=ifs):
            return node in ifs
        case ast.Return() | ast.Lambda():
            return True
    return False
