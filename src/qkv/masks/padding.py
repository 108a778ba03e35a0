"""Padding: keys that are no tokens at all are never attended to."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.mask import Array, Mask, Positions


@dataclass(frozen=True)
class Padding(Mask):
    """A query sees only keys that are tokens. What a *query* that is padding gets is nobody's business."""

    def allows(self, at: Positions) -> Array:
        """True where the key is a token."""
        if at.key_is_token is None:
            return at.everywhere
        return at.key_is_token & at.everywhere

    def __str__(self) -> str:
        return "padding"
