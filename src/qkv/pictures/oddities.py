"""Oddities: numbers that no attention weights should be; they are shown as well as can be, and said."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from qkv.pictures.weights import Rows

Array = np.ndarray
Seen = Counter[str]
"""How many weights, or rows, are odd in which way."""

NEAR = 1e-3
"""How far beyond 1 a weight, or a row's sum, may be by rounding."""

WEIGHTS = {
    "nan": "NaN or minus infinity, drawn as masked",
    "infinite": "Infinite, drawn as 1",
    "negative": "Below 0, which no softmax gives, drawn as 0",
    "above": "Above 1, which no softmax gives, drawn as 1",
    "leaking": "Not 0 although the query may not attend to the key, drawn as weights",
}
ROWS = {
    "empty": "Without a key to attend to",
    "sums": "Not summing to 1, since a sink or dropout takes the rest or these are no weights",
}
"""What is said of each."""


class Cells(NamedTuple):
    """Weights that can be counted on: every one is a number, and 0 where a query may not attend."""

    keys: slice
    weights: Array
    may_attend: Array
    seen: Seen


def put_right(rows: Rows) -> Cells:
    """The rows with what is no number taken for masked, and weights that a mask should hide brought to light."""
    keys, may_attend = rows.keys, rows.may_attend
    weights = rows.weights.astype(np.float64, copy=False)
    seen: Seen = Counter()
    low, high = weights.min(initial=0), weights.max(initial=0)
    if not (low >= 0 and high <= 1 + NEAR):  # NaN too
        nothing = np.isnan(weights) | np.isneginf(weights)
        seen["nan"] = _count(nothing & may_attend)
        weights, may_attend = np.where(nothing, 0, weights), may_attend & ~nothing
        seen["infinite"] = _count(np.isinf(weights))
        seen["negative"] = _count(weights < 0)
        seen["above"] = _count(weights > 1 + NEAR) - seen["infinite"]
    leaking = (weights != 0) & ~may_attend
    seen["leaking"] = _count(leaking)
    may_attend = may_attend | leaking if seen["leaking"] else may_attend
    attends = may_attend.any(axis=1)
    seen["empty"] = _count(~attends & ~rows.may_attend.any(axis=1))  # not those that only NaN has emptied
    sums = weights.sum(axis=1, dtype=np.float64)
    seen["sums"] = _count(attends & ~(np.abs(sums - 1) <= NEAR))
    return Cells(keys, weights, may_attend, seen)


def _count(true: Any) -> int:
    return int(np.count_nonzero(true))


def sentences(seen: Seen) -> list[str]:
    """What there is to say."""
    return [
        f"{words}: {seen[kind]:,} {what}{'s' * (seen[kind] != 1)}"
        for what, said in (("weight", WEIGHTS), ("row", ROWS))
        for kind, words in said.items()
        if seen[kind]
    ]
