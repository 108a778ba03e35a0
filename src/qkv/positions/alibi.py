"""ALiBi: each head subtracts its own slope times the distance between query and key.

Source: Press et al. 2021, "Train Short, Test Long".
"""

from __future__ import annotations

from dataclasses import dataclass

from qkv.positions.wording import fingerprint, number


@dataclass(frozen=True)
class Alibi:
    """``-slope * |query - key|`` is added to the scores.

    Attributes:
        slopes: one slope per head; None means the paper's own (:func:`alibi_slopes`).
        signed: whether ``slope * (key - query)`` is added, which rewards keys ahead of the query. Under a causal mask
            there are none, and both forms are the same.
    """

    slopes: tuple[float, ...] | None = None
    signed: bool = False

    def slopes_for(self, num_heads: int) -> list[float]:
        """The slope of each head."""
        return alibi_slopes(num_heads) if self.slopes is None else list(self.slopes)

    def __str__(self) -> str:
        return f"{self._slopes_in_words()}{', signed' if self.signed else ''}"

    def _slopes_in_words(self) -> str:
        if self.slopes is None:
            return "alibi"
        if len(self.slopes) <= 8:
            return f"alibi with slopes {', '.join(number(slope) for slope in self.slopes)}"
        return f"alibi with {len(self.slopes)} slopes of its own (fingerprint {fingerprint(self.slopes)})"


def alibi_slopes(num_heads: int) -> list[float]:
    """The paper's slopes: a geometric row from ``2^(-8/n)`` down.

    Where ``num_heads`` is no power of two, it is the row of the power below, filled up with every second slope of the
    power above.
    """
    below = 1 << (num_heads.bit_length() - 1)
    row = [2.0 ** (-8 * (head + 1) / below) for head in range(below)]
    above = [2.0 ** (-4 * (head + 1) / below) for head in range(2 * below)]
    return row + above[0::2][: num_heads - below]
