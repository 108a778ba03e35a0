"""Causal: a token uses itself and earlier tokens only."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.intervals import Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Causal(Mask):
    """``key <= query + ahead``, in absolute positions.

    With ``ahead`` 0 this is the ordinary causal mask. Which corner it stands in when there are fewer queries than keys
    is no property of the mask: it follows from the queries' positions (the spec's ``query_offset``).
    """

    ahead: int = 0

    def allows(self, at: Positions) -> Array:
        """True where the key stands no more than ``ahead`` after the query."""
        return at.key <= at.query + self.ahead

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see what the first query sees, and some what the last one sees."""
        return Reach(
            span.keys(stop=span.first_query + self.ahead + 1), span.keys(stop=span.last_query + self.ahead + 1)
        )

    def __str__(self) -> str:
        return f"causal({self.ahead})" if self.ahead else "causal"
