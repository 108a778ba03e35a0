"""How numbers stand in a sentence: in full, so that two different ones never read the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def number(value: float) -> str:
    """The number with every digit it needs, whole numbers without a point: ``10000``, ``0.1``."""
    if isinstance(value, bool) or value != value or abs(value) >= 1e16 or value != int(value):
        return str(value)
    return str(int(value))


def fingerprint(values: Iterable[float]) -> str:
    """Eight letters and digits that differ for different rows of numbers, for rows too long to be printed."""
    text = ",".join(repr(float(value)) for value in values)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
