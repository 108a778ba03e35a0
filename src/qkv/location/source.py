"""The source: the syntax at a place, the line of it that matters, and where what it uses is set."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from qkv.adapters.names import call_role_of, role_of
from qkv.adapters.recording import Operation, Place
from qkv.recognition import LOW
from qkv.vocabulary import Stage

OF_STAGE = {
    Stage.SCALE: ("scale", "softmax_scale", "sm_scale", "alpha"),
    Stage.BIAS: ("beta",),
    Stage.MASK: ("attn_mask", "mask", "is_causal", "causal", "key_padding_mask", "diagonal"),
    Stage.SOFTMAX: ("dim", "axis", "dtype"),
    Stage.DROPOUT: ("dropout_p", "p", "training"),
}
"""Keywords of a call that say how a stage is done."""

DEEPEST = 5
"""How many names are followed from one to the next."""

TAKEN_BY = {
    **dict.fromkeys(("mask", "padding", "lengths", "documents", "causal", "window"), Stage.MASK),
    **dict.fromkeys(("bias", "alibi_slopes"), Stage.BIAS),
    **dict.fromkeys(("cos", "sin", "rope", "freqs_cis", "position_ids"), Stage.POSITION),
    "scale": Stage.SCALE,
    "softcap": Stage.SOFTCAP,
    "dropout": Stage.DROPOUT,
}
"""The stage that takes an argument, by the argument's role."""

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

    def used_behind(self, place: Place, used_at: Place | None) -> int | None:
        """The line on which is used what a place makes; None where it isn't told.

        Args:
            place: the place.
            used_at: where an operation takes it. Elsewhere than in the place's function, what hands it on is meant.
        """
        if used_at is not None and (used_at.file, used_at.function) == (place.file, place.function):
            return self.line_of(used_at, None)
        function = self._function(place)
        lines = [
            node.lineno
            for node in ([] if function is None else ast.walk(function))
            if isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) == place.target
            and node.lineno > place.end_line
        ]
        return min(lines, default=None) or self.return_behind(place)

    def not_reached(self, place: Place, until: int, reached: set[int], skipped: Stage) -> int | None:
        """The line for which nothing is done between two lines, though it could be: a condition, or the call before it.

        Args:
            place: a place in the function, from which on something is left out.
            until: the line that lacks it.
            reached: lines on which something was done.
            skipped: the stage that is left out; a condition that asks for what another stage takes is none.
        """
        function = self._function(place)
        conditions = [
            node
            for node in ([] if function is None else ast.walk(function))
            if isinstance(node, ast.If)
            and place.line <= node.lineno <= until
            and isinstance(node.body[-1], ast.Assign | ast.AugAssign | ast.Expr)
            and reached.isdisjoint(range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1))
            and any(isinstance(one, ast.Call | ast.BinOp) for line in node.body for one in ast.walk(line))
            and _asks_for(node.test) in (skipped, None)
        ]
        if len(conditions) != 1:
            return None
        test = conditions[0].test
        return self._handed(function, test) or self._switched_off(test, place) or conditions[0].lineno

    def _switched_off(self, condition: ast.expr, place: Place) -> int | None:
        """The one line on which an attribute that a condition asks for is set to None or False."""
        names = [ast.unparse(one) for one in ast.walk(condition) if isinstance(one, ast.Attribute)]
        values = [value for name in names[:1] for value in self._values(name, place, 0)]
        off = [value for value in values if isinstance(value, ast.Constant) and not value.value]
        return off[0].lineno if len(values) == len(off) == 1 else None

    def _handed(self, function: ast.FunctionDef | None, condition: ast.expr) -> int | None:
        """The line of the one call of a function that hands over what a condition asks for; None where none does."""
        if function is None:
            return None
        arguments = [one.arg for one in [*function.args.args, *function.args.kwonlyargs]]
        asked = [one.id for one in ast.walk(condition) if isinstance(one, ast.Name) and one.id in arguments]
        calls = list(self._calls(function))
        if len(asked) != 1 or len(calls) != 1:
            return None
        handed = _handed(calls[0], asked[0], _place_of(function, asked[0]))
        return (handed or calls[0]).lineno

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
            if how == "fill" and isinstance(written, ast.Name | ast.Attribute) and isinstance(given, int | float):
                if given > LOW:
                    return next(self._settings(ast.unparse(written), place), None)
                continue
            names = [node for node in ast.walk(written) if isinstance(node, ast.Name | ast.Attribute)]
            if isinstance(written, ast.Subscript) and isinstance(given, int | float) and right.get("slopes"):
                lines = set(self._settings(ast.unparse(written.value), place))
                if len(lines) == 1 and not _among(abs(given), right["slopes"]):
                    return lines.pop()
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

    def switched_on(self, place: Place, operation: Operation) -> int | None:
        """The line on which a variable is set by which an operation drops weights; None where it isn't by one."""
        names = [written for written, given in _numbers(self.node(place), operation) if given]
        function = self._function(place)
        lines: set[int] = set()
        for name in [one.id for one in names if isinstance(one, ast.Name)] if function is not None else ():
            assert function is not None
            values = _assigned(function, name) or _default(function, name)
            lines |= {value.lineno for value in values}
        return lines.pop() if len(lines) == 1 else None

    def misnamed(self, place: Place, operation: Operation, right: Values, roles: Sequence[str]) -> int | None:
        """The line on which a name of one of some roles is set, where an operation is given another number by it.

        Args:
            place: where the operation stands.
            operation: the operation.
            right: what the names of each role hold when they are right.
            roles: the roles that are asked for.
        """
        for written, given in _numbers(self.node(place), operation):
            role = role_of(_last_name(written)) or ""
            if role in roles and right.get(role) and not _among(given, right[role]):
                return next(self._settings(ast.unparse(written), place), None)
        return None

    def written_elsewhere(self, place: Place, right: Values) -> int | None:
        """The line of numbers that an array is only made of here: ``torch.tensor(self.inv_freq)``; None for another.

        Where they are computed with a number that isn't what its name says, it is that number's line.
        """
        node = self.node(place)
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name | ast.Attribute)):
            return None
        values = list(self._values(ast.unparse(node.args[0]), place, 0))
        if len({value.lineno for value in values}) != 1:
            return None
        for name in ast.walk(values[0]):
            meant = right.get(role_of(_last_name(name)) or "", ()) if isinstance(name, ast.Name | ast.Attribute) else ()
            there = replace(place, line=values[0].lineno)
            set_to = list(self._values(ast.unparse(name), there, 0)) if meant else []
            number = _computed(set_to[0], {}) if len(set_to) == 1 else None
            if number is not None and not _among(number, meant):
                return set_to[0].lineno
        return values[0].lineno

    def wrong_index(self, place: Place) -> int | None:
        """The line on which the index is computed that an expression picks heads by; None where none is."""
        node = self.node(place)
        inside = [one for one in ([] if node is None else ast.walk(node)) if isinstance(one, ast.Subscript)]
        names = [one.id for part in inside for one in ast.walk(part.slice) if isinstance(one, ast.Name)]
        function = self._function(place)
        lines = {value.lineno for name in names if function is not None for value in _assigned(function, name)}
        return lines.pop() if len(lines) == 1 else None

    def bound(self, place: Place, which: str) -> int | None:
        """The line on which the start or the end of the one stretch is set that an expression cuts out."""
        node = self.node(place)
        for part in [] if node is None else ast.walk(node):
            end = (part.lower if which == "start" else part.upper) if isinstance(part, ast.Slice) else None
            if isinstance(end, ast.Name):
                return next(self._settings(end.id, place), None)
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

    def names_it(self, place: Place, odd: str, besides: int) -> bool:
        """Whether an array is used under its own name where another belongs: ``weights @ keys``.

        Args:
            place: where it is used.
            odd: what it is.
            besides: how often it belongs there.
        """
        node = self.node(place)
        names = [] if node is None else [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        return sum(call_role_of(name) == odd for name in names) > besides

    def handed_as_another(self, place: Place, odd: str) -> int | None:
        """The line on which a call hands an array over under its own name, for an argument that is another's."""
        call = self.node(place)
        names = _last_name(call.func) if isinstance(call, ast.Call) else ""
        functions = [one for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef) and one.name == names]
        for function in functions[:1]:
            arguments = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
            arguments = arguments[1:] if arguments[:1] == ["self"] else arguments
            assert isinstance(call, ast.Call)
            pairs = [*zip(arguments, call.args, strict=False), *((one.arg or "", one.value) for one in call.keywords)]
            for argument, given in pairs:
                if call_role_of(_last_name(given)) == odd and call_role_of(argument) not in (None, odd):
                    return given.lineno
        return None

    def _settings(self, name: str, place: Place) -> Iterator[int]:
        """The lines on which a name or an attribute gets its value: where it is more than another's name."""
        yield from dict.fromkeys(value.lineno for value in self._values(name, place, 0))

    def _values(self, name: str, place: Place, depth: int) -> Iterator[ast.expr]:
        """What a name or an attribute is set to in its scope, by the calls of its function, or by default."""
        function = self._function(place)
        if "." not in name:
            found = [] if function is None else _assigned(function, name)
            found = [value for value in found if value.lineno < place.line]
            if function is not None and {value.lineno for value in found} <= _defaults(function, name):
                found = list(self._arguments(function, name)) or found
        else:
            classes = [node for node in reversed(self._around(place)) if isinstance(node, ast.ClassDef)]
            found = [value for node in classes[:1] for value in _assigned(node, name)]
            if not found and not name.startswith("self."):  # a field of a config
                found = _assigned(self.tree, name.rpartition(".")[2], fields=True)
        for value in found or _assigned(self.tree, name):
            other = ast.unparse(value) if isinstance(value, ast.Name | ast.Attribute) else ""
            if role_of(other.rpartition(".")[2]) not in (None, role_of(name.rpartition(".")[2])):
                other = ""  # something else is taken for it here
            there = replace(place, line=value.lineno)
            yield from (depth < DEEPEST and other and list(self._values(other, there, depth + 1))) or [value]

    def _arguments(self, function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
        """What the calls of a function hand over for an argument; none where they differ."""
        place = _place_of(function, name)
        if place is None and name not in {one.arg for one in function.args.kwonlyargs}:
            return
        given = [_handed(call, name, place) for call in self._calls(function)]
        if len({None if one is None else ast.unparse(one) for one in given}) == 1:
            yield from [one for one in given if one is not None][:1] or _default(function, name)

    def _calls(self, function: ast.FunctionDef) -> Iterator[ast.Call]:
        """The calls of a function in the file, from elsewhere, also by a name that is set with it among others."""
        inside = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        names = {function.name}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call | ast.IfExp):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id == function.name for one in _parts(node.value)):
                    names |= {_last_name(target) for target in targets}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and _last_name(node.func) in names and node.lineno not in inside:
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
        case ast.BinOp(op=ast.Pow()):
            yield from ((*pair, "**") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.Call() if operation.name in ("masked_fill", "where", "full"):
            yield from ((*pair, "fill") for pair in zip(node.args[-2:], operation.arguments[-2:], strict=False))
        case ast.Call(func=ast.Attribute()) if operation.name in ("mul", "div"):
            how = "*" if operation.name == "mul" else "/"
            skipped = max(len(operation.arguments) - len(node.args), 0)
            yield from ((*pair, how) for pair in zip(node.args, operation.arguments[skipped:], strict=False))
        case ast.Call():
            for keyword in node.keywords:
                given = operation.keywords.get(keyword.arg or "")
                if keyword.arg in OF_STAGE[Stage.SCALE]:
                    yield keyword.value, given, "*"
                elif keyword.arg in ("dim", "axis"):
                    yield keyword.value, given, "axis"


def _numbers(node: ast.expr | None, operation: Operation) -> Iterator[tuple[ast.expr, float]]:
    """The numbers that an operation was given by a name: the name, and the number."""
    pairs: list[tuple[ast.expr | None, object]] = [(written, given) for written, given, _ in _operands(node, operation)]
    match node:
        case ast.Call(args=args):
            pairs += zip(reversed(args), reversed(operation.arguments), strict=False)
            pairs += [(one.value, operation.keywords.get(one.arg or "")) for one in node.keywords]
        case ast.Subscript(slice=ast.Tuple(elts=parts)) if operation.name == "getitem":
            index = operation.arguments[1]
            for part, given in zip(
                reversed(parts), reversed(index) if isinstance(index, list | tuple) else (), strict=False
            ):
                if isinstance(part, ast.Slice) and isinstance(given, list | tuple):
                    pairs += zip((part.lower, part.upper), given[1:3], strict=False)
    for written, given in pairs:
        if isinstance(written, ast.Name | ast.Attribute) and isinstance(given, int | float):
            yield written, given


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


def _place_of(function: ast.FunctionDef, name: str) -> int | None:
    """Which argument of a call a function's argument is, ``self`` aside; None for one that is only given by name."""
    arguments = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
    skipped = 1 if arguments[:1] == ["self"] else 0
    return arguments.index(name) - skipped if name in arguments else None


def _handed(call: ast.Call, name: str, place: int | None) -> ast.expr | None:
    """What a call hands over for an argument, by name or by place; None for nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[place] if place is not None and place < len(call.args) else None


def _default(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """An argument's default."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = [*[None] * (len(arguments) - len(function.args.defaults)), *function.args.defaults]
    pairs = [
        *zip(arguments, defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    yield from (default for argument, default in pairs if argument.arg == name and default is not None)


def _defaults(function: ast.FunctionDef, name: str) -> set[int]:
    """The lines on which an argument that is None gets its value: ``if scale is None: scale = …``."""
    return {
        statement.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.If) and ast.unparse(node.test) == f"{name} is None"
        for statement in node.body
    }


def _parts(value: ast.Call | ast.IfExp) -> list[ast.expr]:
    """What a call hands over, or the two choices: ``interfaces.get(name, eager)``, ``eager if plain else fused``."""
    return value.args if isinstance(value, ast.Call) else [value.body, value.orelse]


def _asks_for(condition: ast.expr) -> Stage | None:
    """The stage that takes what a condition asks for; None where its names don't say."""
    names = [_last_name(node) for node in ast.walk(condition) if isinstance(node, ast.Name | ast.Attribute)]
    stages = {TAKEN_BY.get(call_role_of(name) or "") for name in names} - {None}
    return stages.pop() if len(stages) == 1 else None


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


def _assigned(scope: ast.AST, name: str, *, fields: bool = False) -> list[ast.expr]:
    """What a name is set to in a scope; only as a field of a class, where that is asked for."""
    if fields:
        classes = [node for node in ast.walk(scope) if isinstance(node, ast.ClassDef)]
        statements: list[ast.AST] = [statement for node in classes for statement in node.body]
    else:
        statements = list(ast.walk(scope))
    found = []
    for node in statements:
        match node:
            case ast.Assign(targets=targets, value=value):
                found += [value for target in targets if ast.unparse(target) == name]
            case ast.AugAssign(target=target, value=value) if ast.unparse(target) == name:
                found.append(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if ast.unparse(target) == name:
                found.append(value)
    return found
