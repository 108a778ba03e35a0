"""Constants: the names of numbers that people write, told apart by reading a number at several sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qkv.identification.box import Sizes

Formula = Callable[[Sizes], float]

FORMULAS: Mapping[str, Formula] = {
    "1/sqrt(head_dim)": lambda sizes: sizes.head_dim**-0.5,
    "1": lambda _: 1.0,
    "1/sqrt(embed_dim)": lambda sizes: (sizes.num_heads * sizes.head_dim) ** -0.5,
    "1/head_dim": lambda sizes: 1 / sizes.head_dim,
    "1/embed_dim": lambda sizes: 1 / (sizes.num_heads * sizes.head_dim),
    "1/sqrt(2 * head_dim)": lambda sizes: (2 * sizes.head_dim) ** -0.5,
    "1/sqrt(3 * head_dim)": lambda sizes: (3 * sizes.head_dim) ** -0.5,
    "sqrt(head_dim)": lambda sizes: sizes.head_dim**0.5,
    "head_dim^-1/4": lambda sizes: sizes.head_dim**-0.25,
    "head_dim^-3/2": lambda sizes: sizes.head_dim**-1.5,
    "1/sqrt(head_dim // 2)": lambda sizes: max(sizes.head_dim // 2, 1) ** -0.5,
    "-1/sqrt(head_dim)": lambda sizes: -(sizes.head_dim**-0.5),
    "1/sqrt(key_len)": lambda sizes: sizes.tokens**-0.5,
    "1/key_len": lambda sizes: 1 / sizes.tokens,
    "log(key_len)/sqrt(head_dim)": lambda sizes: math.log(sizes.tokens) * sizes.head_dim**-0.5,
    "log2(key_len)/sqrt(head_dim)": lambda sizes: math.log2(sizes.tokens) * sizes.head_dim**-0.5,
}
"""What people make of sizes, the commonest first."""

FACTORS: Mapping[str, float] = {
    "": 1.0,
    "ln(2) * ": math.log(2),
    "1/ln(2) * ": 1 / math.log(2),
    **{
        f"yarn's mscale for a factor of {factor:g}, squared, * ": (0.1 * math.log(factor) + 1) ** 2
        for factor in (40.0, 4.0, 8.0, 16.0, 32.0, 2.0, 64.0)
    },
    **{
        f"yarn's mscale for a factor of {factor:g} * ": 0.1 * math.log(factor) + 1
        for factor in (40.0, 4.0, 8.0, 16.0, 32.0, 2.0, 64.0)
    },
}
"""What they are multiplied by: base 2 for base e, and the factor that YaRN puts on query and key."""

MODELS = (16, 32, 64, 72, 80, 96, 112, 128, 144, 168, 192, 224, 256, 512)
"""Widths that a scale is written for as a number."""

LARGEST = 1024
"""Any width up to this is recognised where the number is known to many digits."""


@dataclass(frozen=True)
class Reading:
    """A number read at some sizes, and how far off it may be."""

    sizes: Sizes
    value: float
    error: float


def name_of(readings: Sequence[Reading]) -> str:
    """The formula that makes the number at all sizes it was read at; empty where none does."""
    for factor_name, factor in FACTORS.items():
        for name, formula in FORMULAS.items():
            if all(_same(reading, factor * formula(reading.sizes)) for reading in readings):
                return f"{factor_name}{name}"
    sure = all(reading.error <= 1e-9 * abs(reading.value) for reading in readings)
    varied = len({reading.sizes.head_dim for reading in readings}) > 1
    for factor_name, factor in list(FACTORS.items())[:3]:
        widths = [*range(2, LARGEST + 1), *MODELS] if sure else MODELS
        for place, width in enumerate(widths):
            exactly = sure and place < LARGEST - 1
            if all(_same(reading, factor * width**-0.5, exactly) for reading in readings):
                return f"{factor_name}1/sqrt({width})" + (", whatever head_dim is" if varied else "")
    return ""


def cosine_factor(readings: Sequence[Reading]) -> float | None:
    """What the cosine of query and key is multiplied by, where that is one number at all sizes; None otherwise."""
    factors = [reading.value * reading.sizes.head_dim for reading in readings]
    even = all(abs(factor - factors[0]) <= 1e-5 * abs(factors[0]) for factor in factors)
    return factors[0] if even and len({reading.sizes.head_dim for reading in readings}) > 1 else None


def is_base_two(name: str) -> bool:
    """Whether a scale's name says that the softmax is one of powers of two."""
    return name.startswith("ln(2)")


def _same(reading: Reading, value: float, sure: bool = False) -> bool:
    return abs(reading.value - value) <= max((1e-11 if sure else 1e-5) * abs(value), 4 * reading.error)


CHANCE = 0.1
"""A short number counts as what was written where one so near would be this rarely there by chance."""


def rounded(value: float, error: float) -> float:
    """The short number that a measured value is: 30 for 29.9999999; where there is none, all digits that are known."""
    if value == 0.0 or not math.isfinite(value):
        return value
    room = max(4 * error, 1e-14 * abs(value))
    for digits in range(1, 16):
        short = float(f"{value:.{digits}g}")
        apart = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
        if 2 * room > CHANCE * apart:
            break
        if abs(short - value) <= room:
            return short
    return round(value, 1 - math.floor(math.log10(error))) if error > 0 else value
