"""A script rewritten: every expression hands what it makes to a note, and otherwise does what it did."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qkv.adapters.code_lines import code_lines
from qkv.adapters.recording import Place

NOTE = "__qkv_note__"
"""The name under which the script finds what takes the notes."""

OPERATORS = {
    "MatMult": "matmul", "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Pow": "pow", "FloorDiv": "floordiv",
    "Mod": "mod", "USub": "neg", "UAdd": "pos", "Invert": "invert", "Not": "not", "BitAnd": "and", "BitOr": "or",
    "BitXor": "xor", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge", "Eq": "eq", "NotEq": "ne",
}  # fmt: skip


@dataclass(frozen=True)
class Child:
    """An expression among the arguments of another, by its number."""

    number: int


@dataclass(frozen=True)
class Each:
    """All that an expression made in turn: the elements of a generator."""

    number: int


@dataclass(frozen=True)
class Node:
    """One expression of the script, or one statement that changes an array in place.

    Attributes:
        operation: what it does: ``matmul``, ``softmax``, ``getitem``; empty for a name that is read.
        place: where it stands.
        arguments: the expressions that it takes, with constants and lists of them between.
        keywords: likewise by name.
        callee: the expression that is called; None where it is no call.
        binds: the variables that its statement gives what it makes to.
        changes: whether it is a statement that changes an array.
    """

    operation: str
    place: Place
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    callee: Child | None = None
    binds: Sequence[str] = ()
    changes: bool = False


class Noting(ast.NodeTransformer):
    """Rewrites a script. Afterwards ``nodes`` has what each note is about, by number.

    Args:
        source: the script's text, for the code of its expressions.
        file: its name.
    """

    def __init__(self, source: str, file: str) -> None:
        self.nodes: list[Node] = []
        self._lines, self._file = [line.encode() for line in code_lines(source, keepends=True)], file
        self._target, self._functions = "", list[str]()
        self._numbers: dict[int, tuple[ast.AST, Child]] = {}
        self._imported: dict[str, str] = {}

    # --- statements ---------------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> Any:
        """The statement, and a note on each array that it changes by an index."""
        return self._assigned(node, node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Likewise; annotations are left alone."""
        return node if node.value is None else self._assigned(node, [node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """The statement, with a note on what it changes before and after it."""
        self._target = ast.unparse(node.target)
        name = OPERATORS.get(type(node.op).__name__, "op")
        before = self.visit(_loaded(_base(node.target)))
        value = node.value = self.visit(node.value)
        arguments = [self._argument(before)]
        if isinstance(node.target, ast.Subscript):
            node.target = self.visit(node.target)
            name, arguments = "setitem", [*arguments, None, name]
        after = self._change(node, _base(node.target), name, [*arguments, self._argument(value)])
        self._target = ""
        return [_statement(before, node), node, after]

    def _assigned(self, node: Any, targets: Sequence[ast.expr]) -> list[ast.stmt]:
        self._target = ", ".join(ast.unparse(target) for target in targets)
        original, node.value = node.value, self.visit(node.value)
        self._bind(node.value, original, targets)
        after = []
        for target in targets:
            if isinstance(target, ast.Subscript):
                self.visit(target)
                base = self._argument(target.value)
                index = self._argument(target.slice)
                after.append(self._change(node, _base(target), "setitem", [base, index, self._argument(node.value)]))
        self._target = ""
        return [node, *after]

    def _bind(self, value: ast.expr, original: ast.expr, targets: Sequence[ast.expr]) -> None:
        """Nothing; notes which variables a statement gives its value to, one by one where both sides are lists."""
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(original, ast.Tuple):
                for one, part in zip(target.elts, value.elts, strict=False):  # type: ignore[attr-defined]
                    self._bind(part, part, [one])
                continue
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            child = self._argument(value)
            if isinstance(child, Child) and all(isinstance(name, ast.Name | ast.Attribute) for name in names):
                node = self.nodes[child.number]
                binds = [*node.binds, *(ast.unparse(name) for name in names)]
                self.nodes[child.number] = Node(
                    node.operation, node.place, node.arguments, node.keywords, node.callee, binds
                )

    def _change(self, node: ast.AST, base: ast.expr, name: str, arguments: Sequence[Any]) -> ast.stmt:
        return _statement(self._noted(node, _loaded(base), name, arguments, changes=True), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """The definition with its body rewritten; decorators, defaults and annotations stay as they are."""
        return self._within(node, node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """Likewise."""
        return self._within(node, node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Likewise."""
        return self._within(node, node.name)

    def _within(self, node: Any, name: str) -> Any:
        self._functions.append(name)
        outer, self._target = self._target, ""
        body: list[ast.stmt] = []
        for statement in node.body:
            made = self.visit(statement)
            body += made if isinstance(made, list) else [made]
        node.body, self._target = body, outer
        self._functions.pop()
        return node

    # --- expressions --------------------------------------------------------------------------------------------------

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """The import as it is; what it calls by other names is known by its own."""
        self._imported |= {alias.asname: alias.name for alias in node.names if alias.asname}
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """The text as it is: what is only printed makes nothing."""
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> Any:
        """The pattern as it is."""
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        """A note on the variable that is read."""
        if not isinstance(node.ctx, ast.Load) or hasattr(builtins, node.id):
            return node
        return self._noted(node, node, "", ())

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """A note on what the operator makes."""
        self.generic_visit(node)
        name = OPERATORS.get(type(node.op).__name__, "op")
        return self._noted(node, node, name, [self._argument(node.left), self._argument(node.right)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """Likewise; a negative number is one."""
        if isinstance(node.operand, ast.Constant):
            return node
        self.generic_visit(node)
        return self._noted(node, node, OPERATORS[type(node.op).__name__], [self._argument(node.operand)])

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Likewise, of the first operator."""
        self.generic_visit(node)
        name = OPERATORS.get(type(node.ops[0]).__name__, "in")
        return self._noted(node, node, name, [self._argument(one) for one in (node.left, *node.comparators)])

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """A note on ``x.T`` and the like."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return self._noted(node, node, node.attr, [self._argument(node.value)])

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """A note on what an index takes out."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return self._noted(node, node, "getitem", [self._argument(node.value), self._argument(node.slice)])

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """A note on the list."""
        self.generic_visit(node)
        return self._noted(node, node, "list", [])

    def visit_Call(self, node: ast.Call) -> Any:
        """A note on what a call returns."""
        self.generic_visit(node)
        callee, name = self._argument(node.func), getattr(node.func, "id", "call")
        arguments = [self._argument(one) for one in node.args]
        if isinstance(callee, Child):
            called = self.nodes[callee.number]
            name = called.operation or called.place.code
            arguments = [*called.arguments, *arguments]  # what a method belongs to comes first
        name = self._imported.get(name, name)
        keywords = {one.arg: self._argument(one.value) for one in node.keywords if one.arg is not None}
        return self._noted(
            node, node, name.removesuffix("_"), arguments, keywords, callee if isinstance(callee, Child) else None
        )

    def _noted(
        self, node: Any, expression: ast.expr, name: str, arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None, callee: Child | None = None, *, changes: bool = False,
    ) -> ast.expr:  # fmt: skip
        number = len(self.nodes)
        place = self._place(node)
        self.nodes.append(Node(name, place, arguments, keywords or {}, callee, changes=changes))
        taken = ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(number), expression], [])
        ast.copy_location(taken, node)
        ast.fix_missing_locations(taken)
        self._numbers[id(taken)] = taken, Child(number)
        return taken

    def _argument(self, node: Any) -> Any:
        """What an expression stands for among the arguments of another."""
        if id(node) in self._numbers:
            return self._numbers[id(node)][1]
        if isinstance(node, ast.Slice):
            return (
                "slice",
                *(None if one is None else self._argument(one) for one in (node.lower, node.upper, node.step)),
            )
        if isinstance(node, ast.Tuple | ast.List):
            return [self._argument(one) for one in node.elts]
        if isinstance(node, ast.Starred):
            return self._argument(node.value)
        if isinstance(node, ast.GeneratorExp):
            element = self._argument(node.elt)
            return Each(element.number) if isinstance(element, Child) else None
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return ast.unparse(node) if isinstance(node, ast.Name) else None

    def _place(self, node: Any) -> Place:
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        if len(lines) == 1:
            code = lines[0][node.col_offset : node.end_col_offset]
        else:
            code = b"".join([lines[0][node.col_offset :], *lines[1:-1], lines[-1][: node.end_col_offset]])
        shown = " ".join(code.decode("utf-8", "replace").split())
        return Place(
            self._file, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, ".".join(self._functions),
            shown, self._target,
        )  # fmt: skip


def _base(target: ast.expr) -> ast.expr:
    """What a statement changes: ``scores`` of ``scores[i, j]``."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Name) and target.func.id == NOTE:
        return target.args[1]
    return target


def _loaded(target: ast.expr) -> ast.expr:
    """The same variable as an expression that reads it."""
    return ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)


def _statement(expression: ast.expr, like: ast.AST) -> ast.stmt:
    statement = ast.copy_location(ast.Expr(expression), like)
    return ast.fix_missing_locations(statement)
