"""Namings: the line on which a name is made to stand for another array than it says."""

from __future__ import annotations

import ast

from qkv.adapters.names import call_role_of
from qkv.adapters.recording import Place
from qkv.location.misplaced import PROJECTED
from qkv.location.settings import assigned, given_by_place, settings_of
from qkv.location.source import Source, laid_out, last_name


def wrong_index(source: Source, place: Place) -> int | None:
    """The line on which the index is computed that an expression picks heads by; None where none is."""
    node = source.node(place)
    indices = [one.slice for one in ([] if node is None else ast.walk(node)) if isinstance(one, ast.Subscript)]
    picks = [one for index in indices for one in (index.elts if isinstance(index, ast.Tuple) else [index])]
    # A stretch is cut out of tokens.
    picks = [one for one in picks if not isinstance(one, ast.Slice)]
    names = [one.id for pick in picks for one in ast.walk(pick) if isinstance(one, ast.Name)]
    function = source.function(place)
    lines = {value.lineno for name in names if function is not None for value in assigned(function, name)}
    return lines.pop() if len(lines) == 1 else None


def bound(source: Source, place: Place, which: str) -> int | None:
    """The line on which the start or the end of the one stretch is set that an expression cuts out."""
    node = source.node(place)
    for part in [] if node is None else ast.walk(node):
        end = (part.lower if which == "start" else part.upper) if isinstance(part, ast.Slice) else None
        if isinstance(end, ast.Name):
            return next(settings_of(source, end.id, place), None)
    return None


def wrong_name(source: Source, place: Place, odd: str) -> int | None:
    """The line on which a name is made to stand for another array than it says; None where it isn't by name alone.

    Args:
        source: the file.
        place: where the odd array is used.
        odd: what it is: ``key``.
    """
    function = source.function(place)
    for name in source.names_at(place):
        lines = [
            statement.lineno
            for statement in ([] if function is None else ast.walk(function))
            if isinstance(statement, ast.Assign) and statement.lineno <= place.line and _is_alias(statement, name, odd)
        ]
        if lines and call_role_of(name) != odd:
            return max(lines)
    anywhere = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and call_role_of(node.value.id) == odd
        and all(isinstance(target, ast.Name) and call_role_of(target.id) != odd for target in node.targets)
    ]
    return anywhere[0] if len(anywhere) == 1 else None


def set_under_another_name(source: Source, place: Place, odd: str) -> int | None:
    """The line that last sets the name of another array by which an expression reads the odd one; None for no such.

    Args:
        source: the file.
        place: where the expression stands.
        odd: what the array is.
    """
    function, others = source.function(place), read_by_another(source, place, odd)
    lines = [value.lineno for name in others for value in ([] if function is None else assigned(function, name))]
    return max((line for line in lines if line < place.line), default=None)


def read_by_another(source: Source, place: Place, odd: str) -> list[str]:
    """The names in an expression that are those of another projected array than the odd one."""
    return [name for name in source.names_at(place) if call_role_of(name) in {*PROJECTED} - {odd}]


def names_it(source: Source, place: Place, odd: str, besides: int) -> bool:
    """Whether an array is used under its own name where another belongs: ``weights @ keys``.

    Args:
        source: the file.
        place: where it is used.
        odd: what it is.
        besides: how often it belongs there.
    """
    return sum(call_role_of(name) == odd for name in source.names_at(place)) > besides


def handed_as_another(source: Source, place: Place, name: str, odd: str) -> int | None:
    """The line on which a call hands an array over under its own name, for an argument that is another's.

    Args:
        source: the file.
        place: where the call stands.
        name: qualified name of the function that it calls, by whatever name it does.
        odd: what the array is.
    """
    call, name = source.node(place), name.rpartition(".")[2]
    functions = [one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef) and one.name == name]
    for function in functions[:1] if isinstance(call, ast.Call) else ():
        assert isinstance(call, ast.Call)
        pairs = [
            *zip(given_by_place(function), call.args, strict=False),
            *((one.arg or "", one.value) for one in call.keywords),
        ]
        for argument, given in pairs:
            if call_role_of(last_name(given)) == odd and call_role_of(argument) in {*PROJECTED} - {odd}:
                return given.lineno
    return None


def _is_alias(statement: ast.Assign, name: str, odd: str) -> bool:
    """Whether a statement gives a name what another name stands for: ``v = k``, ``k, v = v, k``.

    Or what the odd array is once it is laid out otherwise, by methods and indices: ``v = k.view(*shape)``.
    """
    for target in statement.targets:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = list(zip(target.elts, statement.value.elts, strict=False))
        for to, of in pairs:
            if isinstance(to, ast.Name) and to.id == name:
                base = laid_out(of)
                return isinstance(of, ast.Name) or (base is not None and call_role_of(base) == odd)
    return False
