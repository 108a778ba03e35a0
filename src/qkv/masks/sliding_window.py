"""Sliding window: a query sees only the keys near it."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.mask import Array, Mask, Positions, Span


@dataclass(frozen=True)
class SlidingWindow(Mask):
    """``|query - key| < size``: together with ``causal`` a query sees ``size`` keys, itself included.

    This is Mistral's and Gemma's counting (a window of 4096 is 4096 keys with the query's own). flash-attention's
    ``window_size=(left, 0)`` counts without the query itself: its ``left`` is ``size - 1``.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SpecError(
                f"window is {self.size}, and must be at least 1: it counts the query itself. Try window(1)."
            )

    def allows(self, at: Positions) -> Array:
        """True where query and key are less than ``size`` apart."""
        return (at.query - at.key < self.size) & (at.key - at.query < self.size)

    def throughout(self, span: Span) -> bool | None:
        """True where the two farthest apart are within the window, False where the two nearest are not."""
        if max(span.last_query - span.first_key, span.last_key - span.first_query) < self.size:
            return True
        nearest = max(span.first_query - span.last_key, span.first_key - span.last_query)
        return False if nearest >= self.size else None

    def __str__(self) -> str:
        return f"window({self.size})"
