"""Causal: a token uses itself and earlier tokens only."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.mask import Array, Mask, Positions, Span


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

    def throughout(self, span: Span) -> bool | None:
        """True where the last key may be seen from the first query, False where the first key is ahead of the last."""
        if span.last_key <= span.first_query + self.ahead:
            return True
        return False if span.first_key > span.last_query + self.ahead else None

    def __str__(self) -> str:
        return f"causal({self.ahead})" if self.ahead else "causal"
