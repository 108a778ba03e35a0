"""Settings: the expressions that a name or an attribute gets its value from, through calls and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from qkv.adapters.names import role_of
from qkv.adapters.recording import Place
from qkv.location.source import Source

DEEPEST = 5
"""How many names are followed from one to the next."""


def settings_of(source: Source, name: str, place: Place) -> Iterator[int]:
    """The lines on which a name or an attribute gets its value: where it is more than another's name."""
    yield from dict.fromkeys(value.lineno for value in values_of(source, name, place, 0))


def values_of(source: Source, name: str, place: Place, depth: int) -> Iterator[ast.expr]:
    """What a name or an attribute is set to in its scope, by the calls of its function, or by default."""
    function = source.function(place)
    if "." not in name:
        found = [] if function is None else assigned(function, name)
        found = [value for value in found if value.lineno < place.line]
        if function is not None and {value.lineno for value in found} <= _defaults(function, name):
            found = list(_arguments(source, function, name)) or found
    else:
        classes = [node for node in reversed(source.around(place)) if isinstance(node, ast.ClassDef)]
        found = [value for node in classes[:1] for value in assigned(node, name)]
        if not found and not name.startswith("self."):  # a field of a config
            found = assigned(source.tree, name.rpartition(".")[2], fields=True)
    for value in found or assigned(source.tree, name):
        other = ast.unparse(value) if isinstance(value, ast.Name | ast.Attribute) else ""
        if role_of(other.rpartition(".")[2]) not in (None, role_of(name.rpartition(".")[2])):
            other = ""  # something else is taken for it here
        there = replace(place, line=value.lineno)
        yield from (depth < DEEPEST and other and list(values_of(source, other, there, depth + 1))) or [value]


def _arguments(source: Source, function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What the calls of a function hand over for an argument; none where they differ, or stand in another file."""
    if name not in arguments_of(function):
        return
    place = place_of(function, name)
    given = [handed_in(call, name, place) for call in source.calls(function)]
    elsewhere = [handed_in(call, name, place) for other in source.others for call in other.calls(function)]
    if {*elsewhere} <= {None} and len({None if one is None else ast.unparse(one) for one in given + elsewhere}) == 1:
        yield from [one for one in given if one is not None][:1] or default_of(function, name)


def _defaults(function: ast.FunctionDef, name: str) -> set[int]:
    """The lines on which an argument that is None gets its value: ``if scale is None: scale = …``."""
    return {
        statement.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.If) and ast.unparse(node.test) == f"{name} is None"
        for statement in node.body
    }


def never_read(source: Source, place: Place, role: str) -> str:
    """The name of a role that the class or function around a place sets and nothing there reads; empty for none."""
    around = source.around(place)[:1] or [source.tree]
    names = [node for node in ast.walk(around[0]) if isinstance(node, ast.Name | ast.Attribute)]
    read = {ast.unparse(node) for node in names if isinstance(node.ctx, ast.Load)}
    unread = (ast.unparse(node) for node in names if isinstance(node.ctx, ast.Store))
    return next((name for name in unread if name not in read and role_of(name.rpartition(".")[2]) == role), "")


def arguments_of(function: ast.FunctionDef) -> set[str]:
    """The names of a function's arguments."""
    return {one.arg for one in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}


def place_of(function: ast.FunctionDef, name: str) -> int | None:
    """Which argument of a call a function's argument is, ``self`` aside; None for one that is only given by name."""
    arguments = given_by_place(function)
    return arguments.index(name) if name in arguments else None


def given_by_place(function: ast.FunctionDef) -> list[str]:
    """The names of the arguments that a call may give by place, ``self`` aside."""
    arguments = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
    return arguments[1:] if arguments[:1] == ["self"] else arguments


def handed_in(call: ast.Call, name: str, place: int | None) -> ast.expr | None:
    """What a call hands over for an argument, by name or by place; None for nothing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[place] if place is not None and place < len(call.args) else None


def default_of(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """An argument's default."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = [*[None] * (len(arguments) - len(function.args.defaults)), *function.args.defaults]
    pairs = [
        *zip(arguments, defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    yield from (default for argument, default in pairs if argument.arg == name and default is not None)


def assigned(scope: ast.AST, name: str, *, fields: bool = False) -> list[ast.expr]:
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
