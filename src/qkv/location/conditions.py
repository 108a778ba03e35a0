"""Conditions: why a stage that stands in the code isn't reached."""

from __future__ import annotations

import ast

from qkv.adapters.names import call_role_of
from qkv.adapters.recording import Place
from qkv.location.settings import arguments_of, handed_in, place_of, values_of
from qkv.location.source import Source, last_name
from qkv.vocabulary import Stage

TAKEN_BY = {
    **dict.fromkeys(("mask", "padding", "lengths", "documents", "causal", "window"), Stage.MASK),
    **dict.fromkeys(("bias", "alibi_slopes"), Stage.BIAS),
    **dict.fromkeys(("cos", "sin", "rope", "freqs_cis", "position_ids"), Stage.POSITION),
    "scale": Stage.SCALE,
    "softcap": Stage.SOFTCAP,
    "dropout": Stage.DROPOUT,
}
"""The stage that takes an argument, by the argument's role."""


def not_reached(source: Source, place: Place, until: int, reached: set[int], skipped: Stage) -> int | None:
    """The line for which nothing is done between two lines, though it could be: a condition, or the call before it.

    Args:
        source: the file.
        place: a place in the function, from which on something is left out.
        until: the line that lacks it.
        reached: lines on which something was done.
        skipped: the stage that is left out; a condition that asks for what another stage takes is none.
    """
    function = source.function(place)
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
    return _handed_by_call(source, function, test) or _switched_off(source, test, place) or conditions[0].lineno


def replaced(source: Source, place: Place) -> int | None:
    """The line for which an argument of a function is given another value, of what stands there; None for another.

    It is that of the condition, or of the call that hands nothing over.
    """
    function = source.function(place)
    if function is None or place.target not in arguments_of(function):
        return None
    around = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If) and node.lineno < place.line <= (node.body[-1].end_lineno or node.lineno)
    ]
    return (_handed_by_call(source, function, around[-1].test) or around[-1].lineno) if around else None


def _switched_off(source: Source, condition: ast.expr, place: Place) -> int | None:
    """The one line on which an attribute that a condition asks for is set to None or False."""
    names = [ast.unparse(one) for one in ast.walk(condition) if isinstance(one, ast.Attribute)]
    values = [value for name in names[:1] for value in values_of(source, name, place, 0)]
    off = [value for value in values if isinstance(value, ast.Constant) and not value.value]
    return off[0].lineno if len(values) == len(off) == 1 else None


def _handed_by_call(source: Source, function: ast.FunctionDef | None, condition: ast.expr) -> int | None:
    """The line of the one call of a function that hands over what a condition asks for; None where none does."""
    if function is None:
        return None
    arguments = [one.arg for one in [*function.args.args, *function.args.kwonlyargs]]
    asked = [one.id for one in ast.walk(condition) if isinstance(one, ast.Name) and one.id in arguments]
    calls = list(source.calls(function))
    if len(asked) != 1 or len(calls) != 1:
        return None
    handed = handed_in(calls[0], asked[0], place_of(function, asked[0]))
    return (handed or calls[0]).lineno


def _asks_for(condition: ast.expr) -> Stage | None:
    """The stage that takes what a condition asks for; None where its names don't say."""
    names = [last_name(node) for node in ast.walk(condition) if isinstance(node, ast.Name | ast.Attribute)]
    stages = {TAKEN_BY.get(call_role_of(name) or "") for name in names} - {None}
    return stages.pop() if len(stages) == 1 else None
