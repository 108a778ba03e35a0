"""Prefix: the first tokens are visible to everyone (prefix language models, image tokens first)."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.mask import Array, Mask, Positions, Span


@dataclass(frozen=True)
class Prefix(Mask):
    """``key < length``; joined to a causal mask with ``|`` it makes the prefix bidirectional."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 0:
            raise SpecError(f"prefix is {self.length}, and must be 0 or more: it counts the tokens all queries see.")

    def allows(self, at: Positions) -> Array:
        """True where the key is one of the first ``length``."""
        return at.key + 0 * at.query < self.length

    def throughout(self, span: Span) -> bool | None:
        """True where all keys are in the prefix, False where none is."""
        if span.last_key < self.length:
            return True
        return False if span.first_key >= self.length else None

    def __str__(self) -> str:
        return f"prefix({self.length})"
