"""Dilated: a query sees every so-many-th key, counted from itself."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.intervals import NOTHING, Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Dilated(Mask):
    """``(query - key) % step == 0``; joined to causal and a window it is the dilated window of Longformer."""

    step: int

    def __post_init__(self) -> None:
        if self.step < 1:
            raise SpecError(f"dilated is {self.step}, and must be at least 1: every step-th key is seen.")

    def allows(self, at: Positions) -> Array:
        """True where query and key are a multiple of ``step`` apart."""
        return (at.query - at.key) % self.step == 0

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """Some see all keys if they are ``step`` or more. Fewer see a comb, of too many ranges to be of use."""
        return Reach(span.keys() if self.step == 1 else NOTHING, span.keys())

    def __str__(self) -> str:
        return f"dilated({self.step})"
