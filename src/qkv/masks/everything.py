"""Everything: no mask."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.mask import Array, Mask, Positions, Span


@dataclass(frozen=True)
class Everything(Mask):
    """Every query may attend to every key."""

    def allows(self, at: Positions) -> Array:
        """True everywhere."""
        return at.everywhere

    def throughout(self, span: Span) -> bool | None:
        """True."""
        return True

    def __str__(self) -> str:
        return "everything"
