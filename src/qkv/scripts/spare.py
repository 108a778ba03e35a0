"""Spare: a matrix that was made beside another one and is read nowhere, while that one is used twice."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from itertools import combinations

from qkv.adapters.syntax import dotted
from qkv.adapters.texts import Text
from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.idle import read_names
from qkv.scripts.known import Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading, refs
from qkv.scripts.spots import Written, spot_at


def used_twice(mix: Mix, text: Text) -> Iterator[Finding]:
    """What is wrong where one matrix makes two of query, key and value, and another one like it makes none."""
    products = {"query": mix.product, "key": mix.product, "value": mix.context}
    sides = {"query": mix.query, "key": mix.key, "value": mix.value}
    for one, other in combinations(sides, 2):
        steps = [None if (side := sides[role]) is None else side.first("project") for role in (one, other)]
        product = products[other]
        if None in steps or product is None or len({step.sources[1:] for step in steps if step}) > 1:
            continue
        step = steps[1]
        assert step is not None
        spot = spot_at(mix.reading, _projected(mix.reading, product, step))
        for used in _names(spot.code):
            for spare in spares(text, used):
                said = f"{used} makes the {one} and the {other}, and {spare}, which was made like it, is read nowhere"
                yield Finding.of("projection-reused", said, Written(spot, with_code(spot.code, used, spare)[0]), mix)
                return


def _projected(reading: Reading, product: Known, step: Known) -> int:
    """The operation that made a projection last, of several that made the same, before a product."""
    made = (reading.made_by.get(value, -1) for value in reading.above(product.made))
    numbers = [number for number in made if number >= 0 and _makes(reading, number, step)]
    return max(numbers, default=step.made)


def _makes(reading: Reading, number: int, step: Known) -> bool:
    """Whether an operation makes a projection, and does not only turn it round."""
    operation, sights = reading.operations[number], reading.sights
    given = [sights[value].known for value in refs(operation.arguments) if value in sights]
    return step.sources[1] in given and any(sights[one].known is step for one in operation.results if one in sights)


def spares(text: Text, used: str) -> list[str]:
    """The variables that are read nowhere, and were made as one that is: by the same words, or in one statement."""
    read, made = read_names(text.tree), dict[str, list[str]]()
    for node in ast.walk(text.tree):
        if isinstance(node, ast.Assign):
            targets = [one for target in node.targets for one in getattr(target, "elts", [target])]
            made.setdefault(ast.unparse(node.value), []).extend(filter(None, map(dotted, targets)))
    likely = (names for names in made.values() if used in names)
    return [name for names in likely for name in names if name.rpartition(".")[2] not in read]


def _names(code: str) -> list[str]:
    """The names in an expression or a statement, those of attributes with what they belong to."""
    with contextlib.suppress(SyntaxError):  # lines with comments between them are one line here
        return list(dict.fromkeys(filter(None, map(dotted, ast.walk(ast.parse(code))))))
    return []
