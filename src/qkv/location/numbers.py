"""Numbers: the line on which a number is set that an operation computes with, where that is the wrong one."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from qkv.adapters.names import role_of
from qkv.adapters.recording import Operation, Place
from qkv.location.kinds import ALONG
from qkv.location.settings import (
    arguments_of,
    assigned,
    default_of,
    handed_in,
    place_of,
    settings_of,
    values_of,
)
from qkv.location.source import OF_STAGE, Source, laid_out, last_name
from qkv.recognition import LOW
from qkv.vocabulary import Stage

OTHER_WAY = {"*": "/", "/": "*"}
"""What undoes what is done with a number."""

SAYS_NO_WAY = ("", "scale")
"""Roles of names that don't say whether to multiply by what they hold or to divide by it."""

Values = Mapping[str, Sequence[float]]
"""What the names of a role may stand for when they are right: ``{"head_dim": [8], "scale": [0.35, 2.83]}``."""


def wrong_settings(source: Source, place: Place, operation: Operation, right: Values) -> list[int]:
    """The lines on which a number is set that an operation computes with, where it is wrong there; none elsewhere.

    It is if the expression would be right with what its names say that they hold: ``scores / math.sqrt(d_k)`` is,
    and so ``d_k`` is wrong; ``scores / d_k`` is not.

    Args:
        source: the file.
        place: where the operation stands.
        operation: the operation.
        right: what names hold when they are right, by role; under ``*``, ``/``, ``scale`` and ``axis`` what may be
            multiplied by, divided by, and handed over.
    """
    for written, given, how in _operands(source.node(place), operation):
        if how == "axis" and isinstance(written, ast.Name) and right.get("axis") and given not in right["axis"]:
            return list(settings_of(source, written.id, place))[:1]
        if not isinstance(given, int | float):
            continue
        if how == "fill":
            if given > LOW and isinstance(written, ast.Name | ast.Attribute):
                return list(settings_of(source, ast.unparse(written), place))[:1]
        elif not _among(given, right.get(how, ())):
            for name in _wrong_names(written, given, how, right):
                lines = sorted({*settings_of(source, name, place)})
                if lines:
                    return lines
    return []


def _wrong_names(written: ast.expr, given: float, how: str, right: Values) -> Iterator[str]:
    """The names in an expression that don't hold what they should, as far as it would be right if they did."""
    if isinstance(written, ast.Subscript) and right.get("slopes") and not _among(abs(given), right["slopes"]):
        yield ast.unparse(written.value)
    for name in ast.walk(written):
        if not isinstance(name, ast.Name | ast.Attribute):
            continue
        role = role_of(last_name(name)) or ""
        if name is written and _among(given, right.get(role, ())[:1]):
            continue  # it holds what it says
        if name is written and role in SAYS_NO_WAY and _turned_over(given, how, right):
            continue  # it would do if it were used the other way
        says_nothing = name is written and not role and right.get(how) and how in OTHER_WAY
        if says_nothing or any(_among(one, right.get(how, ())) for one in _values(written, ast.unparse(name), right)):
            yield ast.unparse(name)


def turned_over(source: Source, place: Place, operation: Operation, right: Values) -> int | None:
    """The line that sets the number which an operation multiplies by, where it would do to divide by it; or reversely.

    None where it is no such number, where it has no name, or where its name says which of the two it is for.
    """
    for written, given, how in _operands(source.node(place), operation):
        if not (isinstance(written, ast.Name | ast.Attribute) and isinstance(given, int | float)):
            continue
        if _turned_over(given, how, right) and (role_of(last_name(written)) or "") in SAYS_NO_WAY:
            return next(settings_of(source, ast.unparse(written), place), None)
    return None


def _turned_over(given: float, how: str, right: Values) -> bool:
    """Whether a number that something is multiplied by would do to divide it by, or reversely."""
    return not _among(given, right.get(how, ())) and _among(given, right.get(OTHER_WAY.get(how, ""), ()))


def switched_on(source: Source, place: Place, operation: Operation) -> int | None:
    """The line on which a variable is set by which an operation drops weights; None where it isn't by one."""
    names = [written for written, given in _numbers(source.node(place), operation) if given]
    function = source.function(place)
    lines: set[int] = set()
    for name in [one.id for one in names if isinstance(one, ast.Name)] if function is not None else ():
        assert function is not None
        values = assigned(function, name) or default_of(function, name)
        lines |= {value.lineno for value in values}
    return lines.pop() if len(lines) == 1 else None


def handed_number(source: Source, place: Place, operation: Operation, right: Values) -> int | None:
    """The line on which a name gets its value that is all an operation is given as a number; None for no such one.

    Where that is the value of another name which doesn't hold what it says, it is that one's line.
    """
    node, given = source.node(place), operation.arguments[-1]
    names = list(_numbers(node, operation))
    if not names and isinstance(node, ast.BinOp) and isinstance(given, int | float):
        names = [(node.left, given)]  # torch takes a number on the left as the second
    (written, given), line = names[0] if len(names) == 1 else (None, 0), None
    while isinstance(written, ast.Name | ast.Attribute):
        value = next(values_of(source, ast.unparse(written), place, 0), None)
        if value is None:
            return None
        place, line = replace(place, line=value.lineno), value.lineno
        meant = right.get(role_of(last_name(value)) or "", ())
        written = value if meant and not _among(given, meant) else ast.Constant(given)
    return line


def handed_by(source: Source, place: Place, call: Place, operation: Operation) -> int | None:
    """The line of a call that hands over the number which an operation is given by an argument's name; None for none.

    Args:
        source: the file.
        place: where the operation stands.
        call: the call of the function around it.
        operation: the operation.
    """
    function, node = source.function(place), source.node(call)
    for written, _ in _numbers(source.node(place), operation):
        if isinstance(written, ast.Name) and isinstance(node, ast.Call) and function is not None:
            handed = written.id in arguments_of(function) and handed_in(
                node, written.id, place_of(function, written.id)
            )
            if handed:
                return handed.lineno
    return None


def rotary_dims_at(source: Source, place: Place, operation: Operation, right: Values) -> int | None:
    """The line that sets how many channels rope turns, where those that an operation counts in twos are others."""
    node, counted = source.node(place), operation.arguments[1:3]
    written = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else None
    if operation.name != "arange" or list(counted[1:]) != [2] or not isinstance(counted[0], int):
        return None
    if _among(counted[0], right.get("rotary_dims", (counted[0],))) or not isinstance(written, ast.Name | ast.Attribute):
        return None
    return next(settings_of(source, ast.unparse(written), place), None)


def misnamed(source: Source, place: Place, operation: Operation, right: Values, roles: Sequence[str]) -> int | None:
    """The line on which a name of one of some roles is set, where an operation is given another number by it.

    Args:
        source: the file.
        place: where the operation stands.
        operation: the operation.
        right: what the names of each role hold when they are right.
        roles: the roles that are asked for.
    """
    for written, given in _numbers(source.node(place), operation):
        role = role_of(last_name(written)) or ""
        if role in roles and right.get(role) and not _among(given, right[role]):
            return next(settings_of(source, ast.unparse(written), place), None)
    return None


def own_function(source: Source, place: Place) -> str:
    """The name of the file's own function that gives the numbers which an array is only made of; empty for none."""
    node = source.node(place)
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    names = {one.name for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)}
    return last_name(given.func) if isinstance(given, ast.Call) and last_name(given.func) in names else ""


def filled_in(source: Source, place: Place) -> str:
    """The name of lists which an array is made of, and that are filled number by number; empty for none."""
    node, function = source.node(place), source.function(place)
    name = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if function is None or not isinstance(name, ast.Name):
        return ""
    stored = (one for one in ast.walk(function) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store))
    return name.id if any(laid_out(one) == name.id for one in stored) else ""


def written_elsewhere(source: Source, place: Place, right: Values) -> int | None:
    """The line of numbers that an array is only made of here: ``torch.tensor(self.inv_freq)``; None for another.

    Where they are computed with a number that isn't what its name says, it is that number's line.
    """
    node = source.node(place)
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name | ast.Attribute)):
        return None
    values = list(values_of(source, ast.unparse(node.args[0]), place, 0))
    if not values:
        return None
    for name in ast.walk(values[0]):
        meant = right.get(role_of(last_name(name)) or "", ()) if isinstance(name, ast.Name | ast.Attribute) else ()
        there = replace(place, line=values[0].lineno)
        set_to = list(values_of(source, ast.unparse(name), there, 0)) if meant else []
        number = _computed(set_to[0], {}) if len(set_to) == 1 else None
        if number is not None and not _among(number, meant):
            return set_to[0].lineno
    return values[0].lineno


def _operands(node: ast.expr | None, operation: Operation) -> Iterator[tuple[ast.expr, object, str]]:
    """What an operation computes with: as it is written, as it was, and what is done with it."""
    match node:
        case ast.BinOp(op=ast.Mult()):
            yield from ((*pair, "*") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.BinOp(op=ast.Div()):
            yield from ((*pair, "/") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.BinOp(op=ast.Pow()):
            yield from ((*pair, "**") for pair in zip((node.left, node.right), operation.arguments, strict=False))
        case ast.Compare(left=left, comparators=[right]):
            yield from ((*pair, "<") for pair in zip((left, right), operation.arguments, strict=False))
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
            by_place = node.args[len(node.args) - len(operation.arguments) + 1 :]
            if operation.name in ALONG and len(operation.arguments) > 1 and by_place:
                yield by_place[0], operation.arguments[1], "axis"


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
        case ast.Call(args=[argument]) if last_name(node.func) in ("sqrt", "float"):
            inside = _computed(argument, known)
            if inside is None or inside < 0:
                return None
            return math.sqrt(inside) if last_name(node.func) == "sqrt" else inside
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
