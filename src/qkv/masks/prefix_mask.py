"""Prefix: the first tokens are visible to everyone (prefix language models, image tokens first)."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.intervals import Reach, Span
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


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

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """The first ``length`` keys, whoever asks."""
        return Reach(span.keys(stop=self.length), span.keys(stop=self.length))

    def seams(self) -> set[int]:
        """Where the prefix ends."""
        return {self.length}

    def __str__(self) -> str:
        return f"prefix({self.length})"
