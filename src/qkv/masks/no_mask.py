"""Everything: no mask; and what stands for one that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.intervals import Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Everything(Mask):
    """Every query may attend to every key."""

    def allows(self, at: Positions) -> Array:
        """True everywhere."""
        return at.everywhere

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All keys."""
        return Reach(span.keys(), span.keys())

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True)
class Unexplained(Everything):
    """Sets of keys that were seen and that no known mask makes: in a spec it stands for these."""

    def __str__(self) -> str:
        return "unexplained"
