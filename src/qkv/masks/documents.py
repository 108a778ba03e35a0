"""Documents: texts packed into one sequence don't see each other."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.masks.mask import Array, Mask, Positions


@dataclass(frozen=True)
class Documents(Mask):
    """A query sees the keys of its own document. Everything is one document where none are given."""

    def allows(self, at: Positions) -> Array:
        """True where query and key are of one document."""
        if at.query_document is None or at.key_document is None:
            return at.everywhere
        return at.query_document == at.key_document

    def __str__(self) -> str:
        return "documents"
