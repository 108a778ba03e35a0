"""Ends: another operation that might be changed in the place of the one that is blamed."""

from __future__ import annotations

import numpy as np

from qkv.location.frontier import Frontier
from qkv.location.kinds import COPYING, GROUPING
from qkv.location.masking import of_another_form
from qkv.recognition import LOW
from qkv.vocabulary import Stage


def other_end(frontier: Frontier, number: int) -> int | None:
    """What might be changed in the place of an operation: what made what it groups, its mask, or scaled before.

    Of a softmax that gets a row in which all is hidden, it is what hides; of scores that are multiplied by 1, what
    makes the query, since who writes that 1 may have meant to scale there.
    """
    operation, operands = frontier.operation(number), frontier.sighted(number)
    if operation.name in GROUPING and operands:
        maker = frontier.flow.maker(operands[0][0])
        while maker is not None and _copies_on_the_line(frontier, maker, number) and frontier.flow.operands(maker):
            maker = frontier.flow.maker(frontier.flow.operands(maker)[0])
        return maker
    if frontier.stage == Stage.MASK:
        return of_another_form(frontier, number)
    if frontier.stage == Stage.SOFTMAX and operation.name == "softmax":
        values = frontier.recognition.recording.values
        hidden = [value for value, _ in operands if (values[value].array.max(axis=-1, initial=-np.inf) <= LOW).any()]
        return frontier.flow.maker(hidden[0]) if hidden else None
    if frontier.stage == Stage.SCALE and operation.name in ("mul", "div", "scaled_dot_product_attention"):
        for value, sight in operands:
            if sight.factor != 1.0 and sight.right:
                return frontier.origin(value, lambda maker: _scaled(frontier, maker))
        if scales_by_one(frontier, number):
            return next((one for one in sorted(frontier.slice) if _makes_the_query(frontier, one)), None)
    return None


def _copies_on_the_line(frontier: Frontier, number: int, other: int) -> bool:
    """Whether an operation only copies, on the line of another one; on a line of its own it may lay out as well."""
    here, there = frontier.place(number), frontier.place(other)
    same = here is not None and there is not None and (here.file, here.line) == (there.file, there.line)
    return frontier.operation(number).name in COPYING and same


def scales_by_one(frontier: Frontier, number: int) -> bool:
    """Whether an operation multiplies scores, or divides them, by the number 1."""
    operation = frontier.operation(number)
    numbers = operation.arguments if operation.name in ("mul", "div") else [operation.keywords.get("scale")]
    scores = any(sight.of in ("attn_scores", "query") for _, sight in frontier.sighted(number))
    return scores and any(isinstance(one, float) and one == 1.0 for one in numbers)


def _makes_the_query(frontier: Frontier, number: int) -> bool:
    sight = frontier.sight_of(frontier.operation(number).results)
    return sight is not None and sight.of == "query"


def _scaled(frontier: Frontier, number: int) -> int | None:
    """The first array that an operation is given which is multiplied by something."""
    return next((value for value, sight in frontier.sighted(number) if sight.factor != 1.0), None)
