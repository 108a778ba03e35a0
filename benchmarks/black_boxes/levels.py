"""What is added to the scores, as far as outputs can tell: a bias has no level of its own, and moves with its sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.black_boxes.drawn import Drawn
from benchmarks.black_boxes.rows import seen

LENGTHS = ((7, 7), (5, 12), (12, 5), (1, 6), (16, 16))
"""Query and key lengths at which masks and biases are compared."""

PLACES = 7
"""Tokens up to which a bias by place is compared."""


def by_distance(drawn: Drawn, table: Any, firsts: Sequence[int]) -> Any:
    """``(head, place)``: the bias of a table at each place that is seen, with the first query at ``firsts``."""
    table = np.asarray(table)
    reach = table.shape[1] // 2
    steps = np.concatenate([keys - rows - first for first, (rows, keys) in zip(firsts, _places(drawn), strict=True)])
    return table[:, np.clip(steps, -reach, reach) + reach]


def by_place(drawn: Drawn, matrices: Any) -> Any:
    """``(head, row, column)``: the bias, less the level of each row, or of all rows together where a sink is beside."""
    visible = seen(drawn, PLACES, PLACES)
    bias = np.where(visible, np.stack([np.asarray(matrix)[:PLACES, :PLACES] for matrix in matrices]), 0.0)
    axes = (-2, -1) if drawn.sinks else (-1,)
    counts = np.maximum(visible.sum(axis=axes, keepdims=True), 1)
    return np.where(visible, bias - bias.sum(axis=axes, keepdims=True) / counts, 0.0)


def level(drawn: Drawn, table: Any, matrices: Any, firsts: Sequence[int]) -> Any:
    """The mean of each head's bias: a sink that is raised with it gives the same weights."""
    if table is not None:
        return by_distance(drawn, table, firsts).mean(axis=1)
    if matrices is None:
        return 0.0
    return np.mean(np.stack(matrices)[:, :PLACES, :PLACES], axis=(1, 2), where=seen(drawn, PLACES, PLACES))


def linear(drawn: Drawn) -> bool:
    """Whether alibi is ``slope * (key - query)`` wherever it is seen: where queries begin then raises whole rows."""
    places = zip(LENGTHS, _places(drawn), strict=True)
    return drawn.signed or not any(
        (keys - rows > drawn.first_position(*lengths)).any() for lengths, (rows, keys) in places
    )


def _places(drawn: Drawn) -> list[tuple[Any, Any]]:
    """Rows and columns that are seen, for each pair of lengths."""
    return [np.nonzero(seen(drawn, *lengths)) for lengths in LENGTHS]  # type: ignore[misc]  # two axes
