"""Names for estimated numbers: 0.3535 is 1/sqrt(8), and saying so is half the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping


def named(value: float, candidates: Mapping[str, float], tolerance: float = 1e-4) -> str:
    """``value`` as text, with the name of the candidate it equals to ``tolerance`` where one does."""
    for name, number in candidates.items():
        if abs(value - number) <= tolerance * max(abs(number), 1e-12):
            return f"{value:.6g} = {name}"
    return f"{value:.6g}"
