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

    Of a softmax that gets a row in which all is hidden, it is what hides.
    """
    operation, operands = frontier.operation(number), frontier.sighted(number)
    if operation.name in GROUPING and operands:
        maker = frontier.flow.maker(operands[0][0])
        while maker is not None and frontier.operation(maker).name in COPYING and frontier.flow.operands(maker):
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
    return None


def _scaled(frontier: Frontier, number: int) -> int | None:
    """The first array that an operation is given which is multiplied by something."""
    return next((value for value, sight in frontier.sighted(number) if sight.factor != 1.0), None)
