"""The sums that make one context vector, written out: one row for each key, as one would do it with a pencil."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qkv.lesson.matrix import text, texts
from qkv.lesson.numbers import Lesson


@dataclass(frozen=True)
class Line:
    """What one key adds; every number as text.

    Attributes:
        products: the dot product written out: ``1·0 + 2·1``.
        score: the attention score.
        share: ``e^(score - largest)``, the score's share before it is divided by the sum of all.
        weight: the attention weight.
        vector: the key's own vector.
        weighted: the vector times the weight.
    """

    products: str
    score: str
    share: str
    weight: str
    vector: list[str]
    weighted: list[str]


@dataclass(frozen=True)
class Worksheet:
    """One context vector's sums.

    Attributes:
        lines: one for each key.
        largest: the largest score.
        share_sum: the sum of the shares.
        context: the sum of the weighted vectors, computed alone by plain loops.
    """

    lines: list[Line]
    largest: str
    share_sum: str
    context: list[str]


def worksheet(lesson: Lesson, query: int) -> Worksheet:
    """The sums behind the context vector of one token."""
    inputs, scores, weights = lesson.tokens.inputs, lesson.simple.scores[0, query], lesson.simple.weights[0, query]
    shares = np.exp(scores - scores.max())
    columns = zip(
        [" + ".join(map(_product, inputs[query], key)) for key in inputs],
        texts([scores])[0],
        texts([shares])[0],
        texts([weights])[0],
        texts(inputs),
        texts(weights[:, None] * inputs),
        strict=True,
    )
    alone = texts([lesson.simple.alone(query)])[0]
    return Worksheet([Line(*line) for line in columns], text(scores.max()), text(shares.sum()), alone)


def _product(left: float, right: float) -> str:
    return "·".join(text(factor) if factor >= 0 else f"({text(factor)})" for factor in (left, right))
