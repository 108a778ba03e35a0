"""Half precision on ordinary float64 arrays: each number replaced by the nearest one that the short format has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Rounding = Callable[[np.ndarray], np.ndarray]
"""From float64 numbers to the float64 numbers nearest to them that a shorter format has."""


def to_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, halves to even: a float32 whose lower 16 bits are zero."""
    bits = np.asarray(numbers, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(numbers), rounded.view(np.float32), numbers).astype(np.float64)


def to_float16(numbers: np.ndarray) -> np.ndarray:
    """Rounded to float16. Beyond 65504 there is only infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float32).astype(np.float16).astype(np.float64)


ROUNDINGS: Mapping[str, Rounding] = {"bfloat16": to_bfloat16, "float16": to_float16}
"""Both by the name that the formats have in NumPy and torch."""
