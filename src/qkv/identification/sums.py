"""Sums: what the weights of a row add up to, and what takes the rest."""

from __future__ import annotations

import numpy as np

from qkv.identification.box import Floats


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
