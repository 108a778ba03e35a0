"""Relative bias: a learned number for each head and distance is added to the scores (T5, Swin, music transformers)."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.positions.wording import fingerprint


@dataclass(frozen=True)
class RelativeBias:
    """``table[head][clip(key - query, -reach, reach) + reach]`` is added to the scores.

    Attributes:
        table: one row per head, one number per distance from ``-reach`` to ``reach``.
    """

    table: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        if len(widths) != 1 or not next(iter(widths)) % 2:
            raise SpecError(
                f"relative_bias has rows of {sorted(widths)} numbers; each head needs the same odd number of them, "
                "one per distance from -reach to +reach"
            )

    @property
    def reach(self) -> int:
        """The largest distance that has a number of its own."""
        return len(self.table[0]) // 2

    def __str__(self) -> str:
        table = fingerprint(value for row in self.table for value in row)
        return f"relative bias up to distance {self.reach} (table {table})"
