"""Which keys get weight, at equal lengths that grow and at unequal ones?"""

from __future__ import annotations

import time

import numpy as np

from qkv.errors import CandidateError
from qkv.identification.found import Found

LONGER = (24, 96, 300)
"""Numbers of tokens that make windows and clipped tables visible, tried while calls are quick."""

PATIENCE = 0.4
"""Seconds that reading the weights of one length may take before no longer one is tried."""


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters what was seen.

    Raises:
        CandidateError: it doesn't take its own number of tokens.
    """
    tokens = found.box.sizes.tokens
    if found.view.look(found.reader, (tokens, tokens), rng) is None:
        raise CandidateError(next(iter(found.view.refused.values())))
    for length in LONGER if not found.dropout else LONGER[:1]:
        started = time.perf_counter()
        found.view.look(found.reader, (length, length), rng)
        if time.perf_counter() - started > PATIENCE or _fades(found, length):
            break
    ragged = [(tokens - 3, tokens + 2), (tokens + 2, tokens - 3), (1, tokens + 1)]
    taken = [found.view.look(found.reader, lengths, rng) for lengths in ragged if min(lengths) > 0]
    if not any(taken):  # in whole blocks, then
        for lengths in ((tokens, 2 * tokens), (2 * tokens, tokens)):
            found.view.look(found.reader, lengths, rng)
    if not all(seen.settled for seen in found.view.sights.values()):
        found.odd.append("which keys get weight depends on the numbers in query and key, so it is no fixed mask")


def _fades(found: Found, length: int) -> bool:
    """Whether weights get so small at this length that a longer one would show some as zero."""
    seen = found.view.sights.get((length, length))
    if seen is None:
        return False
    alive = seen.even[seen.allowed]
    return bool(alive.size and alive.min() < {"float64": 1e-60, "float32": 1e-9}.get(found.precision, 1e-2))
