"""Ranking: the largest weights of each row."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

NO_KEY = np.uint32(2**32 - 1)
"""Stands where a row has fewer keys than are asked for."""


def largest(weights: Array, count: int, first_key: int) -> tuple[Array, Array]:
    """The keys of the ``count`` largest weights of each row, falling, and the weights, each ``(query, count)``.

    Args:
        weights: ``(query, key)``, minus infinity where a query may not attend.
        count: how many.
        first_key: the number of the first key.
    """
    keys, found = np.full((len(weights), count), NO_KEY), np.full((len(weights), count), np.nan)
    size = min(count, weights.shape[1])
    best = np.argpartition(weights, -size, axis=1)[:, -size:] if size else np.zeros((len(weights), 0), int)
    best = np.sort(best, axis=1)  # of equal weights the earlier key comes first
    values = np.take_along_axis(weights, best, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    best, values = np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)
    known = values > -np.inf
    keys[:, :size] = np.where(known, best + first_key, NO_KEY)
    found[:, :size] = np.where(known, values, np.nan)
    return keys, found
