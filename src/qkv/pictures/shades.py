"""Shades: which colour a number has, alike wherever matrices are drawn.

Blue is weight, the deeper the more. Numbers of either sign are orange above 0 and violet below.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

WEIGHT = ("#9cbfe3", "#3b78b8", "#1d4f91")
"""From little to much; light and dark enough for every kind of colour vision, and for grey."""

BELOW, ABOVE = ("#7a2f94", "#c493d9"), ("#f2a36b", "#b5480d")
"""From the most below 0 towards it, and from there to the most above. All are the hues of the pages."""

Curve = Literal["linear", "root", "log"]
"""How a weight becomes a shade: in proportion, by its square root, or by its logarithm."""

MANY = 64
"""Keys up to which weights have shades in proportion. Of more, most are too small for that, and it is the logarithm."""

BELOW_EVEN = 32
"""How many times smaller than a share of a row that is spread evenly the smallest weight with a shade is."""


def colours(zero: str, *, signed: bool) -> list[str]:
    """The colours from the lowest number to the largest, evenly; ``zero`` is that of 0."""
    return [*BELOW, zero, *ABOVE] if signed else [zero, *WEIGHT]


class Shading(NamedTuple):
    """How numbers from 0 on become shares of the deepest shade.

    Attributes:
        largest: the number that has the deepest.
        key_len: how many keys there are.
        chosen: how, where somebody has chosen it.
    """

    largest: float
    key_len: int
    chosen: Curve | None = None

    @property
    def curve(self) -> Curve:
        """How a number becomes a shade."""
        return self.chosen or ("log" if self.key_len > MANY else "linear")

    @property
    def least(self) -> float:
        """The number at which shades begin."""
        return self.largest / (BELOW_EVEN * self.key_len) if self.curve == "log" else 0.0

    def shares(self, numbers: Any) -> NDArray[np.float64]:
        """From 0 to 1, for each number."""
        inside = np.clip(np.asarray(numbers, np.float64), self.least, self.largest)
        if self.curve == "log":
            return np.log(inside / self.least) / np.log(self.largest / self.least)
        return (inside / self.largest) ** (0.5 if self.curve == "root" else 1)
