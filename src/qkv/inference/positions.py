"""Positions in a source: which of its expressions are where queries stand, and which are where keys do.

Only the syntax is read. A row of positions that is turned upright (``arange(T)[:, None]``) is that of the queries, one
that lies is that of the keys; a number that a loop counts belongs to what it picks from.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Literal

from qkv.adapters.names import call_role_of
from qkv.adapters.syntax import called, names_in

Kind = Literal["query", "key", "row", "behind", "ahead", "length"]
"""Positions of queries or keys, or of either; how far keys are behind queries, or ahead; numbers that are no window."""

_QUERY = re.compile(r"^(rows?|(q|query|queries)_?(pos|positions?|idx|index|i|row))s?$")
_KEY = re.compile(r"^(cols?|columns?|(k|kv|key|keys)_?(pos|positions?|idx|index|j|col))s?$")
_OFFSET = re.compile(r"(^|_)(offset|past|shift|start)(_|$)")
_SHAPED = frozenset({"view", "reshape", "unsqueeze", "expand_dims"})
_SAME = frozenset({"to", "long", "int", "astype", "expand", "contiguous", "type"})


_NEGATED: Mapping[Kind | None, Kind] = {"length": "length", "behind": "ahead", "ahead": "behind"}


class Positions:
    """Where queries and keys stand, by the expressions of one source.

    Args:
        tree: the source.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        self.counted: set[str] = set()
        self._lengths: set[str] = set()
        self._asked: set[str] = set()
        self._roles: dict[str, set[str]] = {}
        self._kinds: dict[str, Kind | None] = {}
        self._numbered: list[tuple[str, ast.expr]] = []
        self._picked: dict[str, set[str]] = {}
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._read(node)
        for name, of in self._numbered:
            self._note(name, of)
        for node in nodes:
            if isinstance(node, ast.Subscript):
                for name in _picking(node.slice) & self.counted:
                    self._note(name, node.value)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self._bind(target, ast.BinOp(ast.Name(name), op, value))
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                self._count(target, source)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.values.setdefault(name, []).append(value)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, own in zip(targets, values, strict=True):
                    self._bind(one, own)
            case ast.Tuple(elts=targets), _ if _is_size(value):
                self._lengths |= {one.id for one in targets if isinstance(one, ast.Name)}

    def _count(self, target: ast.expr, source: ast.expr) -> None:
        match target, source:
            case ast.Name(id=name), ast.Call() if called(source) == "range":
                self.counted.add(name)
            case ast.Tuple(elts=[ast.Name(id=name), one]), ast.Call(args=[of, *_]) if called(source) == "enumerate":
                self.counted.add(name)
                self._numbered.append((name, of))
                self._bind(one, of)

    def _note(self, name: str, base: ast.expr) -> None:
        roles = self.roles(base)
        if roles == {"query"} or roles <= {"key", "value"}:
            self._picked.setdefault(name, set()).update("query" if role == "query" else "key" for role in roles)

    def roles(self, node: ast.AST) -> set[str]:
        """Of query, key and value those that an expression is made of."""
        found: set[str] = set()
        for name in _read_in(node) - self.counted:
            role = call_role_of(name)
            found |= {role} if role in ("query", "key", "value") else self._roles_of(name)
        return found

    def _roles_of(self, name: str) -> set[str]:
        if name not in self._roles:
            self._roles[name] = set()  # a name may be made of itself
            self._roles[name] = {role for value in self.values.get(name, ()) for role in self.roles(value)}
        return self._roles[name]

    def kind(self, node: ast.AST) -> Kind | None:
        """What an expression is; None where that can't be said."""
        match node:
            case ast.Constant(value=int(number)) if abs(number) <= 1:
                return "length"
            case ast.Name(id=name):
                return self._of_name(name)
            case ast.Subscript(value=value, slice=at) if not _is_size(node):
                return _turned(self.kind(value), _side_of(at))
            case ast.Call():
                return self._of_call(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._of_sum(left, op, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _NEGATED.get(self.kind(operand))
        return "length" if _is_size(node) else None

    def _of_name(self, name: str) -> Kind | None:
        if name in self.counted:
            picked = self._picked.get(name, set())
            return "length" if len(picked) != 1 else "query" if picked == {"query"} else "key"
        if name not in self._kinds and name not in self._asked:
            self._asked.add(name)
            kinds = {self.kind(value) for value in self.values.get(name, ())}
            self._kinds[name] = kinds.pop() if len(kinds) == 1 else None if kinds else self._by_words(name)
        return self._kinds[name] if name in self._kinds else self._by_words(name)

    def _by_words(self, name: str) -> Kind | None:
        if name in self._lengths or _OFFSET.search(name):
            return "length"
        return "query" if _QUERY.match(name) else "key" if _KEY.match(name) else None

    def _of_call(self, node: ast.Call) -> Kind | None:
        name, own = called(node), node.func.value if isinstance(node.func, ast.Attribute) else None
        if name == "arange":
            return next((kind for one in node.args if (kind := self.kind(one)) in ("query", "key")), "row")
        if name in ("min", "max", "minimum", "maximum") and node.args:
            kinds = {self.kind(one) for one in node.args}
            return next(iter(kinds - {"length"} or kinds)) if len(kinds - {"length"}) < 2 else None
        if name in _SHAPED and own is not None:
            array, sizes = (node.args[0], node.args[1:]) if name == "expand_dims" else (own, node.args)
            return _turned(self.kind(array), _side_made(name, sizes))
        if name in _SAME and own is not None:
            return self.kind(own)
        return "length" if _is_size(node) else None

    def _of_sum(self, left: ast.expr, op: ast.operator, right: ast.expr) -> Kind | None:
        sides = self.kind(left), self.kind(right)
        if isinstance(op, ast.Mult | ast.FloorDiv):  # a block's number times its length is where it begins
            return "length" if any(isinstance(one, ast.Name) and one.id in self.counted for one in (left, right)) else (
                "length" if set(sides) == {"length"} else None)  # fmt: skip
        if None in sides or not isinstance(op, ast.Add | ast.Sub):
            return None
        kinds = set(sides) - {"length"}
        if len(kinds) < 2:
            same = isinstance(op, ast.Sub) and "length" not in sides  # two of one kind less each other are none
            return None if same and kinds else next(iter(kinds), "length")
        if isinstance(op, ast.Sub) and kinds in ({"query", "key"}, {"query", "row"}):
            return "behind" if sides[0] == "query" else "ahead"
        return next(iter(kinds - {"row"})) if "row" in kinds and not kinds & {"behind", "ahead"} else None


def _read_in(node: ast.AST) -> set[str]:
    """The same but for those of which only a size is read."""
    if _is_size(node):
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*(_read_in(child) for child in ast.iter_child_nodes(node)))


def _picking(at: ast.expr) -> set[str]:
    """The names by which one is picked, or a block beginning there; where a cut ends picks nothing."""
    axes = at.elts if isinstance(at, ast.Tuple) else [at]
    begins = [axis.lower if isinstance(axis, ast.Slice) else axis for axis in axes]
    plain = [one for one in begins if isinstance(one, ast.Name | ast.BinOp)]
    cuts = [axis.lower for axis in axes if isinstance(axis, ast.Slice)]
    return {name for one in plain if isinstance(one, ast.Name) or one not in cuts for name in names_in(one)}


def _is_size(node: ast.AST) -> bool:
    """Whether an expression is a shape, or a size of one."""
    match node:
        case ast.Subscript(value=value):
            return _is_size(value)
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call():
            return called(node) in ("size", "len", "numel")
    return False


def _turned(kind: Kind | None, side: Kind | None) -> Kind | None:
    return side if kind == "row" and side is not None else kind


def _side_of(at: ast.expr) -> Kind | None:
    """Which axis a row lies along under ``[:, None]`` or ``[None, :]``; None where it gets no new one."""
    axes = at.elts if isinstance(at, ast.Tuple) else [at]
    new = [ast.unparse(axis).rpartition(".")[2] in ("None", "newaxis") for axis in axes]
    return None if not any(new) else "query" if new[-1] and len(axes) > 1 else "key"


def _side_made(name: str, sizes: list[ast.expr]) -> Kind | None:
    """The same under ``reshape(-1, 1)``, ``unsqueeze(0)`` and the like."""
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
        sizes = sizes[0].elts
    said = [ast.unparse(one) for one in sizes]
    if name in ("unsqueeze", "expand_dims"):
        return "query" if said in (["-1"], ["1"]) else "key" if said == ["0"] else None
    return None if "1" not in said else "query" if said[-1] == "1" else "key"
