"""Precision: how coarse the numbers are that come out, and so how closely anything can be read."""

from __future__ import annotations

import numpy as np

from qkv.comparison import EPSILON, round_to
from qkv.identification.box import Floats

COARSE_FIRST = ("bfloat16", "float16", "float32", "float64")


def precision_of(weights: Floats) -> str:
    """The coarsest dtype that holds every one of these weights exactly."""
    numbers = weights[np.isfinite(weights)]
    for dtype in COARSE_FIRST:
        with np.errstate(all="ignore"):
            if np.array_equal(round_to(numbers, dtype), numbers):
                return dtype
    return "float64"


def room(noise: float) -> float:
    """How far off a number may be that was read, as a share of it.

    Fine numbers go through many roundings; coarse ones through the few at which a coarse dtype stands between scores
    and output, and what is computed in between is finer.

    Args:
        noise: distance from 1 to the next number.
    """
    return (64 if noise < 1e-6 else 6) * noise


def coarser(*dtypes: str) -> str:
    """The coarsest of these dtypes."""
    return max(dtypes, key=lambda dtype: EPSILON[dtype])


def smallest_normal(dtype: str) -> float:
    """Weights below this have lost digits."""
    return {"float64": 1e-300, "float32": 1e-36, "bfloat16": 1e-36, "float16": 1e-4}[dtype]
