"""Biases: what is added to the scores, read where query and key are zero."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from qkv.identification.box import Floats
from qkv.identification.precision import room
from qkv.positions.alibi import alibi_slopes


@dataclass(frozen=True)
class Biases:
    """What is added to one head's scores.

    Attributes:
        kind: ``none``, ``alibi`` (a slope), ``distance`` (a table) or ``position`` (a matrix).
        slope: alibi's slope.
        signed: whether keys ahead of the query are rewarded; None where there are none.
        table: ``distance`` to number; zero at the query itself where that is seen.
        matrix: ``(query, key)``, each row less its own mean (beside a sink less that of all rows); NaN where hidden.
        offset: position of the first query for which this is so.
        error: how far off the slope, or a number of the table or the matrix, may be.
    """

    kind: str
    slope: float = 0.0
    signed: bool | None = None
    table: dict[int, float] | None = None
    matrix: Floats | None = None
    offset: int = 0
    error: float = 0.0

    def added(self, distance: np.ndarray) -> Floats:
        """What is added to the scores, ``(query, key)``.

        Args:
            distance: of each key from each query, as many of them as the matrix has where there is one.
        """
        if self.kind == "alibi":
            sloped: Floats = self.slope * (distance if self.signed else -np.abs(distance)).astype(float)
            return sloped
        if self.table is not None:
            table = self.table
            return np.array([[table.get(int(step), 0.0) for step in row] for row in distance])
        return np.zeros(distance.shape) if self.matrix is None else np.nan_to_num(self.matrix)

    def raised(self, levels: Floats) -> Biases:
        """The same with each row of the matrix raised by its level, less the mean of all."""
        assert self.matrix is not None
        rows = self.matrix + levels[:, None]
        return replace(self, matrix=rows - np.nanmean(rows))

    def shares(self, allowed: np.ndarray, offset: int) -> Floats:
        """The sum of ``exp(bias)`` over the keys each query may attend to, the first query standing at ``offset``."""
        query_len, key_len = allowed.shape
        added = self.added(np.arange(key_len)[None, :] - (np.arange(query_len) + offset)[:, None])
        shares: Floats = np.where(allowed, np.exp(added), 0.0).sum(axis=-1)
        return shares


def unseen_bias(noise: float, keys: float) -> float:
    """How large a bias rounding may hide: weights have this relative error, and the smallest is one of so many keys."""
    return room(noise) * max(1.0, float(np.log(keys)))


def biases_of(even: Floats, allowed: np.ndarray, noise: float, offset: int) -> Biases:
    """The bias in a head, from the weights of queries and keys of zeros.

    Args:
        even: the weights, ``(query, key)``.
        allowed: which of them count.
        noise: relative error of a weight.
        offset: position of the first query.
    """
    with np.errstate(all="ignore"):
        logs = np.where(allowed & (even > 0), np.log(even), np.nan)
    seen = np.isfinite(logs).sum(axis=-1) > 0
    if not seen.any():
        return Biases("none")
    rows = np.full_like(logs, np.nan)
    rows[seen] = logs[seen] - np.nanmean(logs[seen], axis=-1, keepdims=True)
    spread = float(np.nanmax(np.abs(rows)))
    least = unseen_bias(noise, float(np.exp(np.nanmax(np.abs(logs)))))
    if spread <= least:
        return Biases("none")
    distance = np.arange(even.shape[1])[None, :] - (np.arange(even.shape[0]) + offset)[:, None]
    alibi = _alibi(rows, distance, least)
    if alibi is not None:
        return replace(alibi, offset=offset)
    table = _by_distance(rows, distance, least)
    if table is None:
        return Biases("position", matrix=rows, offset=offset, error=least)
    # Distances that grow on both sides of another diagonal are alibi for queries that stand elsewhere.
    for further in range(1, MOST_OFFSET) if offset == 0 else ():
        alibi = _alibi(rows, distance - further, least)
        if alibi is not None:
            return replace(alibi, offset=further)
    return Biases("distance", table=table, offset=offset, error=least)


MOST_OFFSET = 16


def _alibi(rows: Floats, distance: np.ndarray, least: float) -> Biases | None:
    for signed in (False, True):
        fitted = _sloped(rows, distance if signed else -np.abs(distance), least)
        if fitted is not None:
            ahead = bool((np.isfinite(rows) & (distance > 0)).any())
            return Biases("alibi", fitted[0], signed if ahead else None, error=fitted[1])
    return None


def _sloped(rows: Floats, along: np.ndarray, least: float) -> tuple[float, float] | None:
    """The slope and its error with which the rows follow a regressor; None where they don't."""
    regressor = np.where(np.isfinite(rows), along, np.nan).astype(float)
    many = np.isfinite(regressor).sum(axis=-1) > 1
    regressor = regressor[many] - np.nanmean(regressor[many], axis=-1, keepdims=True)
    square = float(np.nansum(regressor**2))
    if square == 0.0:
        return None
    slope = float(np.nansum(regressor * rows[many])) / square
    off = np.nanmax(np.abs(rows[many] - slope * regressor))
    return (slope, float(least / square**0.5)) if off <= 2 * least else None


def _by_distance(rows: Floats, distance: np.ndarray, least: float) -> dict[int, float] | None:
    """The number of each distance, rows being known up to a number of their own; None where no table makes them."""
    at, keys = np.nonzero(np.isfinite(rows))
    steps, place = np.unique(distance[at, keys], return_inverse=True)
    _, line = np.unique(at, return_inverse=True)
    right = rows[at, keys]
    if len(right) <= len(steps):
        return None
    numbers, levels = _fitted(right, place, line)
    if np.abs(numbers[place] + levels[line] - right).max() > 4 * least:
        return None
    table = {int(step): float(number) for step, number in zip(steps, numbers, strict=True)}
    zero = table.get(0, float(np.mean(list(table.values()))))
    return {step: number - zero for step, number in table.items()}


def _fitted(right: Floats, place: np.ndarray, line: np.ndarray) -> tuple[Floats, Floats]:
    """The numbers and the levels that come closest to ``right = numbers[place] + levels[line]``.

    The numbers are what is left in their places on average, so equations remain for the levels alone.
    """
    numbers, levels = np.zeros(place.max() + 1), np.zeros(line.max() + 1)
    together = np.bincount(place * len(levels) + line, minlength=numbers.size * levels.size).reshape(-1, len(levels))
    often = together.sum(axis=1)
    equations = np.diag(together.sum(axis=0)) - together.T @ (together / often[:, None])
    inverse = np.linalg.pinv(equations, rcond=1e-12, hermitian=True)
    for _ in range(3):  # after the first time for the digits that were rounded off
        off = right - numbers[place] - levels[line]
        by_place = np.bincount(place, off)
        raised = inverse @ (np.bincount(line, off) - together.T @ (by_place / often))
        numbers, levels = numbers + (by_place - together @ raised) / often, levels + raised
    return numbers, levels


def slopes_named(slopes: list[float], error: float) -> str:
    """The formula that makes these slopes; empty where none does."""
    count = len(slopes)
    close = [1e-4 * abs(slope) + 4 * error for slope in slopes]

    def same(others: list[float]) -> bool:
        return all(abs(a - b) <= room for a, b, room in zip(slopes, others, close, strict=True))

    if same(alibi_slopes(count)):
        return (
            "alibi's own slopes, 2^(-8 h / num_heads)"
            if count & (count - 1) == 0
            else "alibi's own slopes, interpolated"
        )
    if same([2.0 ** (-8 * (head + 1) / count) for head in range(count)]):
        return "2^(-8 h / num_heads), without alibi's interpolation"
    if same([2.0 ** (-8 * head / count) for head in range(count)]):
        return "2^(-8 h / num_heads) counted from head 0"
    ratios = [b / a for a, b in itertools.pairwise(slopes) if a]
    if len(ratios) > 1 and max(ratios) - min(ratios) <= 1e-4 * abs(ratios[0]):
        return f"a geometric row with ratio {ratios[0]:.6g}"
    return ""
