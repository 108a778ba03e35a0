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
        sinks = _sinks(sums, shares)
        errors = 16 * noise / np.maximum(1 - sums, noise)
        sure = np.where(np.isfinite(sinks), 1 / errors**2, 0.0)
    if not sure.any(axis=-1).all():
        return None
    found = np.sum(np.where(sure > 0, sinks, 0.0) * sure, axis=-1) / sure.sum(axis=-1)
    off = np.where(sure > 0, np.abs(sinks - found[:, None]) / errors, 0.0)
    if off.max() > 16:
        return None
    return found, 1 / np.sqrt(sure.sum(axis=-1))


def levels_of(sums: Floats, shares: Floats, noise: float) -> Floats:
    """What each row's scores are raised by, ``(head, query)``, where a head has one sink; 0 for rows that don't count.

    Args:
        sums: see `sinks_of`.
        shares: likewise, of scores whose rows have no level yet.
        noise: relative error of a weight; a row leaves as much to the sink at least.
    """
    levels = -_sinks(np.minimum(sums, 1 - noise), shares)
    return np.where(np.isfinite(levels), levels, 0.0)


def _sinks(sums: Floats, shares: Floats) -> Floats:
    """The sink that leaves each row its sum."""
    with np.errstate(all="ignore"):
        sinks: Floats = np.log(shares * (1 - sums) / sums)
    return sinks
