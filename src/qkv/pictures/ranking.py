"""Ranking: the largest weights of each row."""

from __future__ import annotations

import numpy as np

from qkv.pictures.pyramid import pooled

Array = np.ndarray

NO_KEY = np.uint32(2**32 - 1)
"""Stands where a row has fewer keys than are asked for."""

STRETCH = 64
"""Keys of a stretch: only the stretches with the largest maxima are looked into."""


def largest(weights: Array, count: int, first_key: int) -> tuple[Array, Array]:
    """The keys of the ``count`` largest weights of each row, falling, and the weights, each ``(query, count)``.

    Args:
        weights: ``(query, key)``, minus infinity where a query may not attend.
        count: how many.
        first_key: the number of the first key.
    """
    keys = _best(pooled(weights, 1, 0, STRETCH), count)[:, :, None] * STRETCH + np.arange(STRETCH)
    keys = keys.reshape(len(weights), -1)  # query, count * STRETCH
    inside = keys < weights.shape[1]
    found = np.take_along_axis(weights, np.where(inside, keys, 0), axis=1)
    found = np.where(inside, found, -np.inf)
    best = _best(found, count)
    keys, found = np.take_along_axis(keys, best, axis=1), np.take_along_axis(found, best, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    keys, found = np.take_along_axis(keys, order, axis=1), np.take_along_axis(found, order, axis=1)
    known, room = found > -np.inf, ((0, 0), (0, count - best.shape[1]))
    return (
        np.pad(np.where(known, keys + first_key, NO_KEY), room, constant_values=NO_KEY),
        np.pad(np.where(known, found, np.nan), room, constant_values=np.nan),
    )


def _best(numbers: Array, count: int) -> Array:
    """The places of the largest numbers of each row, rising; all where there are no more than ``count``."""
    if numbers.shape[1] <= count:
        return np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    return np.sort(np.argpartition(numbers, -count, axis=1)[:, -count:], axis=1)
