"""Sliding window: a query sees only the keys near it."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.intervals import Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


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

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see what is near the first query and the last, and some what is near either, or between them."""
        first, last, size = span.first_query, span.last_query, self.size
        return Reach(span.keys(last - size + 1, first + size), span.keys(first - size + 1, last + size))

    def __str__(self) -> str:
        return f"window({self.size})"
