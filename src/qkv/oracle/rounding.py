"""Rounding: what is left of numbers in a coarser format, on any array library."""

from __future__ import annotations

from types import ModuleType

from qkv.oracle.inputs import Array

_BITS, _LARGEST = 8, (2 - 2.0**-7) * 2.0**127
"""bfloat16: the binary digits of a number, and the largest finite one."""


def rounded(xp: ModuleType, x: Array, dtype: str) -> Array:
    """``x`` rounded to the nearest numbers of another format, in its own dtype; by way of float32, as libraries do it.

    Where nothing is lost it may be ``x`` itself.

    Args:
        xp: the array library of ``x``.
        x: floating numbers.
        dtype: ``float64``, ``float32``, ``bfloat16`` or ``float16``.
    """
    if dtype == "float64":
        return x
    short = xp.astype(x, xp.float32, copy=False)
    if dtype == "bfloat16":
        short = _to_bfloat16(xp, xp.astype(short, xp.float64))
    elif dtype == "float16":
        short = xp.astype(short, xp.float16)
    return xp.astype(short, x.dtype, copy=False)


def _to_bfloat16(xp: ModuleType, x: Array) -> Array:
    """Float64 numbers rounded to bfloat16, which NumPy hasn't: by Veltkamp's splitting (Dekker 1971)."""
    finite = xp.isfinite(x)
    number = xp.where(finite, x, xp.zeros_like(x))
    wide = number * (2.0 ** (53 - _BITS) + 1)
    near = wide - (wide - number)
    infinite = xp.full_like(near, float("inf"))
    near = xp.where(near > _LARGEST, infinite, xp.where(near < -_LARGEST, -infinite, near))
    return xp.where(finite, near, x)
