"""Examination: the questions that a box is asked, one after the other, each with inputs made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qkv.identification.box import Box
from qkv.identification.found import Found
from qkv.identification.questions import added, chance, corner, empty, rules, scores, sizes, visible
from qkv.identification.routing import Routing
from qkv.identification.weights import WeightReader

QUESTIONS: Mapping[str, Callable[[Found, np.random.Generator], None]] = {
    "dropout and precision": chance.ask,
    "visible keys": visible.ask,
    "scores": scores.ask,
    "scale": sizes.ask,
    "mask": rules.ask,
    "biases and sinks": added.ask,
    "corner": corner.ask,
    "empty rows": empty.ask,
}
"""What is asked, in order: later questions build on what earlier ones have found."""


def examine(
    box: Box, routing: Routing, rng: np.random.Generator, advance: Callable[[float], None] = lambda share: None
) -> Found:
    """Everything that can be read off a box; interrupted, what has been read by then.

    Args:
        box: the box.
        routing: where its heads lead.
        rng: draws the inputs.
        advance: is told the share of the work done since it was told last.

    Raises:
        CandidateError: it can't be called, or its values carry no code.
    """
    found = Found(box, WeightReader(box, routing), routing)
    left = list(QUESTIONS)
    try:
        for name, ask in QUESTIONS.items():
            ask(found, rng)
            left.remove(name)
            advance(1 / len(QUESTIONS))
    except KeyboardInterrupt:
        found.unasked = left
    return found
