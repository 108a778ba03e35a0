"""Comparisons by which a source hides later keys: ``cols > rows``, ``i - j >= 0``, ``for j in range(i + 1)``.

One counts only where what it gives goes on to hide something, and where no argument decides whether it is made.
"""

from __future__ import annotations

import ast
import re
from textwrap import dedent

from qkv.adapters.names import call_role_of
from qkv.adapters.syntax import called, names_in, parents_of
from qkv.inference.positions import Kind, Positions

_ORDERS = re.compile(r"(lt|le|lte|gt|ge|gte|less|less_equal|greater|greater_equal)_?")
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
        later = text.says_later(node)
        if later is not None and not text.is_asked_for(node) and text.hides(node, later):
            return ast.unparse(node.iter if isinstance(node, ast.For | ast.comprehension) else node)
    return None


class _Comparisons:
    def __init__(self, tree: ast.AST) -> None:
        self.positions = Positions(tree)
        self.above = parents_of(tree)
        self.loads: dict[str, list[ast.AST]] = {}
        self.followed: set[str] = set()
        arguments: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.loads.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.arg):
                arguments.add(node.arg)
        self.switches = {one for one in arguments if call_role_of(one) not in ("query", "key", "value", "x")}

    def says_later(self, node: ast.AST) -> bool | None:
        """Whether it is true of later keys, by a comparison of places; False for earlier ones, None where it is none.

        A loop over keys, or a cut of them, that ends where a query stands is of earlier ones.
        """
        kind = self.positions.kind
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = zip([left, *others], ops, others, strict=False)
                said = (_later(kind(one), type(op).__name__.lower(), kind(two)) for one, op, two in sides)
                return next((later for later in said if later is not None), None)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr="outer"), args=[one, other]):
                return _later("query", name, "key") if {kind(one), kind(other)} == {"row"} else None
            case ast.Call(func=ast.Attribute(value=own), args=[*before, last]):
                return _later(kind(before[0] if before else own), called(node), kind(last))
            case (ast.For(iter=ast.Call(args=args) as source, target=ast.Name(id=name))
                  | ast.comprehension(iter=ast.Call(args=args) as source, target=ast.Name(id=name))):  # fmt: skip
                counts = called(source) == "range" and len(args) in (1, 2) and kind(ast.Name(name)) == "key"
                return False if counts and kind(args[-1]) == "query" else None
            case ast.Subscript(value=value, slice=at):
                cuts = [one for one in (at.elts if isinstance(at, ast.Tuple) else [at]) if isinstance(one, ast.Slice)]
                ends = any(
                    one.upper is not None and kind(one.upper) == "query"
                    and (one.lower is None or kind(one.lower) != "query")
                    for one in cuts
                )  # fmt: skip
                return False if ends and self._of_keys(value) else None
        return None

    def _of_keys(self, value: ast.expr) -> bool:
        roles = self.positions.roles(value)
        return bool(roles) and roles <= {"key", "value"}

    def is_asked_for(self, node: ast.AST) -> bool:
        """Whether an argument or a setting decides if it is made at all."""
        while (parent := self.above.get(node)) is not None:
            if isinstance(parent, ast.If | ast.IfExp) and node is not parent.test:
                test = {one.attr for one in ast.walk(parent.test) if isinstance(one, ast.Attribute)}
                if names_in(parent.test) & {*self.switches, "self"} and "shape" not in test:
                    return True
            node = parent
        return False

    def hides(self, node: ast.AST, later: bool) -> bool:
        """Whether what an expression gives, which is true of later keys or of earlier ones, goes on to hide something.

        Of keys that are earlier *or* something else, or later *and* something else, nothing is known to hide the later.
        """
        if isinstance(node, ast.For | ast.comprehension | ast.Subscript):
            return True
        while (parent := self.above.get(node)) is not None:
            handed_on = self._handed_on(parent, node, later)
            if handed_on is None:
                return self._ends(parent, node, later)
            node, later = parent, handed_on
        return False

    def _handed_on(self, parent: ast.AST, node: ast.AST, later: bool) -> bool | None:
        """Whether what gives a truth on is true of later keys; None where it is used, or lost among others."""
        match parent:
            case ast.BoolOp(op=op) | ast.BinOp(op=(ast.BitAnd() | ast.BitOr()) as op):
                return None if isinstance(op, ast.And | ast.BitAnd) == later else later
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                return not later
            case ast.UnaryOp() | ast.Compare() | ast.Attribute() | ast.Tuple():
                return later
            case ast.BinOp():
                return None if _beside_lowest(parent, node) else later
            case ast.Subscript(slice=at):
                return None if node is at else later
            case ast.Call() if self._is_given(parent, node) is None:
                name = called(parent)
                return None if name == ("logical_and" if later else "logical_or") else later != name.endswith("_not")
        return None

    def _ends(self, parent: ast.AST, node: ast.AST, later: bool) -> bool:
        """Whether a truth is used to hide where it is not handed on."""
        match parent:
            case ast.BinOp():
                return _beside_lowest(parent, node)
            case ast.Subscript():
                return self._fills(parent)
            case ast.keyword(arg=name):
                return call_role_of(name or "") == "mask" or bool(_USED.search(name or ""))
            case ast.Call():
                return bool(self._is_given(parent, node))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.NamedExpr(target=ast.Name(id=name)):
                return self._is_used(name, later)
        return _decides(parent, node)

    def _fills(self, chosen: ast.Subscript) -> bool:
        """Whether what is chosen is filled with the lowest number: ``scores[hidden] = -inf``."""
        parent = self.above.get(chosen)
        return isinstance(parent, ast.Assign) and chosen in parent.targets and _is_lowest(parent.value)

    def _is_used(self, name: str, later: bool) -> bool:
        if name in self.followed:
            return False
        self.followed.add(name)
        return any(self.hides(one, later) for one in self.loads.get(name, ()))

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


def _later(one: Kind | None, order: str, other: Kind | None) -> bool | None:
    """Whether ``one`` in this order to the other says that a key is later; None for other things or no order."""
    if not _ORDERS.fullmatch(order):
        return None
    greater = order.startswith("g")
    if {one, other} in ({"query", "key"}, {"query", "row"}):
        return greater != (one == "query")
    if {one, other} in ({"behind", "length"}, {"ahead", "length"}):
        return (greater == (other == "length")) == ("ahead" in (one, other))
    return None


def _beside_lowest(sum_of: ast.BinOp, node: ast.AST) -> bool:
    return _is_lowest(sum_of.right if node is sum_of.left else sum_of.left)


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
