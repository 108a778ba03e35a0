"""Sums: what the weights of a row add up to, and what is left of a row without keys."""

from __future__ import annotations

import numpy as np

from qkv.identification.box import Floats
from qkv.identification.visibility import View
from qkv.vocabulary import EmptyRow


def sinks_of(sums: Floats, shares: Floats, noise: float) -> tuple[Floats, Floats] | None:
    """Each head's sink and its error, from rows that sum to less than one; None where none explains the sums.

    Args:
        sums: sum of the weights, ``(head, query)``; NaN for rows that don't count.
        shares: the sum of ``exp(score)`` over the keys, ``(head, query)``.
        noise: relative error of a weight.
    """
    with np.errstate(all="ignore"):
        sinks = np.log(shares * (1 - sums) / sums)
        errors = 16 * noise / np.maximum(1 - sums, noise)
        sure = np.where(np.isfinite(sinks), 1 / errors**2, 0.0)
    if not sure.any(axis=-1).all():
        return None
    found = np.sum(np.where(sure > 0, sinks, 0.0) * sure, axis=-1) / sure.sum(axis=-1)
    off = np.where(sure > 0, np.abs(sinks - found[:, None]) / errors, 0.0)
    if off.max() > 16:
        return None
    return found, 1 / np.sqrt(sure.sum(axis=-1))


def empty_row_of(view: View) -> EmptyRow | None:
    """What a row without keys gives, from rows that are zero, NaN or evenly spread; None where no such row was seen.

    An even row counts only beside others that hide something, or else it is an ordinary row that sees everything.
    """
    for seen in view.sights.values():
        for even in seen.even:
            if np.isnan(even).any():
                return "nan"
            zero = (even == 0).all(axis=-1)
            if zero.any():
                return "zero"
    return None


def evenly_spread(view: View, empty: dict[tuple[int, int], np.ndarray]) -> bool:
    """Whether rows that a mask leaves without keys are spread evenly over all of them.

    Args:
        view: what was seen.
        empty: rows without keys, ``(head, query)``, by lengths.
    """
    return any(rows.any() and bool(view.sights[lengths].allowed[rows].all()) for lengths, rows in empty.items())
