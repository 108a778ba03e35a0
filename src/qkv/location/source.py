"""The source: the syntax at a place, the line of it that matters, and where what it uses is set."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.adapters.names import call_role_of, role_of
from qkv.adapters.recording import Operation, Place
from qkv.vocabulary import Stage

OF_STAGE = {
    Stage.SCALE: ("scale", "softmax_scale", "sm_scale"),
    Stage.MASK: ("attn_mask", "mask", "is_causal", "causal", "key_padding_mask", "diagonal"),
    Stage.SOFTMAX: ("dim", "axis", "dtype"),
    Stage.DROPOUT: ("dropout_p", "p", "training"),
}
"""Keywords of a call that say how a stage is done."""

HIDING = frozenset({"masked_fill", "masked_fill_", "where"})
"""Calls by which scores are hidden."""

Values = Mapping[str, Sequence[float]]
"""What the names of a role may stand for when they are right: ``{"head_dim": [8], "scale": [0.35, 2.83]}``."""


@dataclass(frozen=True)
class Source:
    """A file of the candidate's.

    Attributes:
        text: what stands in it.
    """

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    def node(self, place: Place) -> ast.expr | None:
        """The expression at a place."""
        at = place.line, place.column, place.end_line, place.end_column
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and at == (
                node.lineno, node.col_offset, node.end_lineno, node.end_col_offset,
            ):  # fmt: skip
                return node
        return None

    def line_of(self, place: Place, stage: Stage | None) -> int:
        """The line of an expression that does what it does: of its operator, its method, or the keyword of a stage."""
        node = self.node(place)
        match node:
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if stage is not None and keyword.arg in OF_STAGE.get(stage, ()):
                        return keyword.value.lineno
                return node.func.end_lineno or place.line
            case ast.BinOp():
                return node.right.lineno
            case _:
                return place.line

    def return_behind(self, place: Place) -> int | None:
        """The line of the first return statement from a place on in its function; None where there is none."""
        function = self._function(place)
        lines = [] if function is None else [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)]
        return min((line for line in lines if line >= place.line), default=None)

    def not_reached(self, place: Place, reached: set[int]) -> int | None:
        """The line for which scores are not hidden in a place's function, though it could: a condition, or a call.

        Args:
            place: a place in the function.
            reached: lines on which something was done.
        """
        function = self._function(place)
        for node in [] if function is None else ast.walk(function):
            if isinstance(node, ast.If) and any(
                isinstance(call, ast.Call) and _last_name(call.func) in HIDING and call.lineno not in reached
                for statement in node.body
                for call in ast.walk(statement)
            ):
                return self._handed(function, node.test) or node.lineno
        return None

    def _handed(self, function: ast.FunctionDef | None, condition: ast.expr) -> int | None:
        """The line of the one call of a function that hands over what a condition asks for; None where none does."""
        if function is None:
            return None
        arguments = [one.arg for one in [*function.args.args, *function.args.kwonlyargs]]
        asked = [one.id for one in ast.walk(condition) if isinstance(one, ast.Name) and one.id in arguments]
        calls = list(self._calls(function))
        if len(asked) != 1 or len(calls) != 1:
            return None
        return next(self._arguments(function, asked[0]), calls[0].lineno)

    def wrong_number(self, place: Place, operation: Operation, right: Values) -> int | None:
        """The line on which a number is set that an operation computes with, where that line is the wrong one.

        It is if the expression would be right with what its names say that they hold: ``scores / math.sqrt(d_k)`` is,
        and so ``d_k`` is wrong; ``scores / d_k`` is not.

        Args:
            place: where the operation stands.
            operation: the operation.
            right: what names hold when they are right, by role; under ``*``, ``/``, ``scale`` and ``axis`` what may be
                multiplied by, divided by, and handed over.
        """
        for written, given, how in _operands(self.node(place), operation):
            if how == "axis" and isinstance(written, ast.Name) and right.get("axis") and given not in right["axis"]:
                return next(self._settings(written.id, place), None)
            names = [node for node in ast.walk(written) if isinstance(node, ast.Name | ast.Attribute)]
            if not isinstance(given, int | float) or _among(given, right.get(how, ())):
                continue
            for name in names:
                role = role_of(ast.unparse(name).rpartition(".")[2]) or ""
                if _among(given, right.get(role, ())[:1]) and name is written:
                    continue  # it holds what it says
                if any(_among(value, right.get(how, ())) for value in _values(written, ast.unparse(name), right)):
                    lines = set(self._settings(ast.unparse(name), place))
                    if len(lines) == 1:
                        return lines.pop()
        return None

    def wrong_name(self, place: Place, odd: str) -> int | None:
        """The line on which a name is made to stand for another array than it says; None where it isn't by name alone.

        Args:
            place: where the odd array is used.
            odd: what it is: ``key``.
        """
        node, function = self.node(place), self._function(place)
        names = [] if node is None else [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        for name in names:
            lines = [
                statement.lineno
                for statement in ([] if function is None else ast.walk(function))
                if isinstance(statement, ast.Assign) and statement.lineno <= place.line and _is_alias(statement, name)
            ]
            if lines and call_role_of(name) != odd:
                return max(lines)
        anywhere = [
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Name)
            and call_role_of(node.value.id) == odd
            and all(isinstance(target, ast.Name) and call_role_of(target.id) != odd for target in node.targets)
        ]
        return anywhere[0] if len(anywhere) == 1 else None

    def names_it(self, place: Place, odd: str) -> bool:
        """Whether an array is used under its own name where another belongs: ``weights @ keys``."""
        node = self.node(place)
        names = [] if node is None else [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        return any(call_role_of(name) == odd for name in names)

    def _settings(self, name: str, place: Place) -> Iterator[int]:
        """The lines on which a name or an attribute is set: in its scope, by a call of its function, or for all."""
        if "." not in name:
            function = self._function(place)
            lines = [] if function is None else list(_assignments(function, name))
            lines = [line for line in lines if line < place.line]
            if function is not None and not lines:
                lines = list(self._arguments(function, name))
        else:
            classes = [node for node in reversed(self._around(place)) if isinstance(node, ast.ClassDef)]
            lines = [line for node in classes[:1] for line in _assignments(node, name)]
        yield from lines or _assignments(self.tree, name)

    def _arguments(self, function: ast.FunctionDef, name: str) -> Iterator[int]:
        """The line of what the one call of a function hands over for an argument; none where it isn't told."""
        arguments = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
        calls = list(self._calls(function))
        if name not in {*arguments, *(one.arg for one in function.args.kwonlyargs)} or len(calls) != 1:
            return
        yield from (keyword.value.lineno for keyword in calls[0].keywords if keyword.arg == name)
        skipped = 1 if arguments[:1] == ["self"] else 0
        place = arguments.index(name) - skipped if name in arguments else len(calls[0].args)
        yield from (one.lineno for one in calls[0].args[place : place + 1])

    def _calls(self, function: ast.FunctionDef) -> Iterator[ast.Call]:
        """The calls of a function in the file, from elsewhere."""
        inside = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and _last_name(node.func) == function.name and node.lineno not in inside:
                yield node

    def _around(self, place: Place) -> list[ast.AST]:
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.lineno <= place.line <= (node.end_lineno or node.lineno)
        ]

    def _function(self, place: Place) -> ast.FunctionDef | None:
        return next((node for node in reversed(self._around(place)) if isinstance(node, ast.FunctionDef)), None)


def read(file: str) -> Source | None:
    """The source of a file; None where it can't be read or is no Python."""
    try:
        source = Source(Path(file).read_text(encoding="utf-8-sig"))
        _ = source.tree
    except (OSError, ValueError, SyntaxError):
        return None
    return source


def _operands(node: ast.expr | None, operation: Operation) -> Iterator[tuple[ast.expr, object, str]]:
    """What an operation computes with: as it is written, as it was, and what is done with it."""
    match node:
        case ast.BinOp(op=ast.Mult()):
            yield from ((*pair, "*") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.BinOp(op=ast.Div()):
            yield from ((*pair, "/") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.Call(func=ast.Attribute()) if operation.name in ("mul", "div"):
            how = "*" if operation.name == "mul" else "/"
            skipped = max(len(operation.arguments) - len(node.args), 0)
            yield from ((*pair, how) for pair in zip(node.args, operation.arguments[skipped:], strict=False))
        case ast.Call():
            for keyword in node.keywords:
                given = operation.keywords.get(keyword.arg or "")
                if keyword.arg in OF_STAGE[Stage.SCALE]:
                    yield keyword.value, given, "scale"
                elif keyword.arg in ("dim", "axis"):
                    yield keyword.value, given, "axis"


def _values(written: ast.expr, wrong: str, right: Values) -> Iterator[float]:
    """What an expression would be if one of its names held what it says."""
    role = role_of(wrong.rpartition(".")[2]) or ""
    for value in right.get(role, ()):
        computed = _computed(written, {wrong: value})
        if computed is not None:
            yield computed


def _computed(node: ast.expr, known: Mapping[str, float]) -> float | None:
    """The value of simple arithmetic; None for anything else."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name() | ast.Attribute():
            return known.get(ast.unparse(node))
        case ast.UnaryOp(op=ast.USub()):
            inside = _computed(node.operand, known)
            return None if inside is None else -inside
        case ast.BinOp():
            left, right = _computed(node.left, known), _computed(node.right, known)
            return None if left is None or right is None else _arithmetic(node.op, left, right)
        case ast.Call(args=[argument]) if _last_name(node.func) in ("sqrt", "float"):
            inside = _computed(argument, known)
            if inside is None or inside < 0:
                return None
            return math.sqrt(inside) if _last_name(node.func) == "sqrt" else inside
        case _:
            return None


def _arithmetic(operator: ast.operator, left: float, right: float) -> float | None:
    try:
        match operator:
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.Pow():
                power = left**right
                return power if isinstance(power, float) else None
            case _:
                return None
    except (ZeroDivisionError, OverflowError):
        return None


def _among(number: float, right: Sequence[float]) -> bool:
    return any(math.isclose(number, one, rel_tol=1e-6) for one in right)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_alias(statement: ast.Assign, name: str) -> bool:
    """Whether a statement only gives a name what another name stands for: ``v = k``, ``k, v = v, k``."""
    for target in statement.targets:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = list(zip(target.elts, statement.value.elts, strict=False))
        if any(isinstance(to, ast.Name) and to.id == name and isinstance(of, ast.Name) for to, of in pairs):
            return True
    return False


def _assignments(scope: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=targets):
                whole: list[ast.expr] = list(targets)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                whole = [target]
            case _:
                continue
        if any(ast.unparse(target) == name for target in whole):
            yield node.lineno
