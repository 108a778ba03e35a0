"""What is added to the scores, and does anything take weight that is no key?"""

from __future__ import annotations

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification.biases import biases_of
from qkv.identification.found import Found
from qkv.identification.sums import sinks_of


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters each head's bias and sink."""
    square, noise = found.exact_square, EPSILON[found.precision]
    seen, offset, exact = found.view.sights[square], found.offset_for(*square), found.exact(square)
    found.biases = [biases_of(seen.even[head], exact[head], noise, offset) for head in found.heads]
    _sums(found)


def _sums(found: Found) -> None:
    """Sinks, from rows that sum to less than one."""
    square = found.exact_square
    seen, noise = found.view.sights[square], EPSILON[found.precision]
    counts = seen.allowed.any(axis=-1) & np.isfinite(seen.even).all(axis=-1)
    totals = np.where(counts, seen.even.sum(axis=-1), np.nan)
    off = np.nanmax(np.abs(totals - 1)) if counts.any() else 0.0
    if off <= 64 * noise * max(square[1] ** 0.5, 1.0):
        return
    offset = found.offset_for(*square)
    shares = np.stack([bias.shares(seen.allowed[head], offset) for head, bias in enumerate(found.biases)])
    found.sinks = sinks_of(totals, shares, noise)
    if found.sinks is None:
        found.odd.append(
            f"rows of weights sum to {np.nanmin(totals):.4g} to {np.nanmax(totals):.4g}, which no sink explains"
        )
