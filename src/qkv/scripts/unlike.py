"""Unlike: what is made of weights and values, or of the heads' context vectors, and is no step of an attention."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from qkv.scripts import naming
from qkv.scripts.lists import CONTEXT
from qkv.scripts.possible import PRODUCTS
from qkv.scripts.reading import Reading, refs

_SUM = "the sum of all values, each times its weight"


def unlike(reading: Reading) -> Iterator[tuple[str, int]]:
    """Why something is none of the steps that it seems to be, and its line."""
    return chain(_operations(reading), _variables(reading))


def _operations(reading: Reading) -> Iterator[tuple[str, int]]:
    """Products of weights and tokens, and views of several heads, that make nothing known."""
    for number, operation in enumerate(reading.operations):
        made = next((reading.sights[value].known.kind for value in operation.results if value in reading.sights), "")
        given = [reading.sights[value] for value in refs(operation.arguments) if value in reading.sights]
        if operation.name in PRODUCTS and not made and {one.known.kind for one in given} == {"weights", "tokens"}:
            yield f"{reading.code(number)} multiplies weights by tokens, and is not {_SUM}", reading.line_of(number)
        apart = bool(given) and given[0].known.kind == "context" and "head" in given[0].axes
        if operation.name in ("reshape", "view", "flatten") and apart and made != "context":
            said = f"{reading.code(number)} puts the heads together in an order in which no token has its own numbers"
            yield said, reading.line_of(number)


def _variables(reading: Reading) -> Iterator[tuple[str, int]]:
    """Variables that are called context vectors, made of weights and values, and hold none."""
    for name, value in {binding.name: binding.value for binding in reading.run.bound}.items():
        sight = reading.sights.get(value)
        if not CONTEXT & set(naming.words(name)) or (sight is not None and sight.known.kind == "context"):
            continue
        above = reading.with_all_above(reading.parents.get(value, ()))
        kinds = {reading.sights[one].known.kind for one in above if one in reading.sights}
        if {"weights", "tokens"} <= kinds and "context" not in kinds:
            yield f"{name} is made of weights and values, and is not {_SUM}", reading.line(value)
