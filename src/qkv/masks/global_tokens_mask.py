"""Global tokens: the first tokens see everything, and everyone sees them."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.intervals import Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class GlobalTokens(Mask):
    """``query < count or key < count``; joined to a window with ``|`` (Longformer, BigBird)."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise SpecError(f"global_tokens is {self.count}, and must be 0 or more: it counts the first tokens.")

    def allows(self, at: Positions) -> Array:
        """True where the query or the key is one of the first ``count``."""
        return (at.query < self.count) | (at.key < self.count)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """Everything from the first ``count`` queries, and the first ``count`` keys from the others."""
        first = span.keys(stop=self.count)
        return Reach(
            span.keys() if span.last_query < self.count else first,
            span.keys() if span.first_query < self.count else first,
        )

    def seams(self) -> set[int]:
        """Where the global tokens end."""
        return {self.count}

    def __str__(self) -> str:
        return f"global_tokens({self.count})"
