"""What is added to the scores, and does anything take weight that is no key?"""

from __future__ import annotations

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification.biases import biases_of, unseen_bias
from qkv.identification.box import Floats
from qkv.identification.found import Found
from qkv.identification.precision import room
from qkv.identification.sums import levels_of, sinks_of

COARSE = 0.05
"""A bias, or a share of a row, that may have gone unseen is told from this size on."""


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters each head's bias and sink, and what may have gone unseen."""
    square, noise = found.exact_square, EPSILON[found.precision]
    seen, offset, exact = found.view.sights[square], found.offset_for(*square), found.exact(square)
    found.biases = [biases_of(seen.even[head], exact[head], noise, offset) for head in found.heads]
    unseen = unseen_bias(noise, square[1])
    if unseen > COARSE and all(read.kind == "none" for read in found.biases):
        found.undecided.append(f"a bias (alibi, or by distance) of less than {unseen:.1g}: {found.precision} hides it")
    _sums(found)


def _sums(found: Found) -> None:
    """Sinks, from rows that sum to less than one."""
    square = found.exact_square
    seen, noise = found.view.sights[square], EPSILON[found.precision]
    keys = seen.allowed.sum(axis=-1)
    counts = (keys > 0) & np.isfinite(seen.even).all(axis=-1)
    totals = np.where(counts, seen.even.sum(axis=-1), np.nan)
    allowed = room(noise) * np.sqrt(keys)
    if not (counts & (np.abs(totals - 1) > allowed)).any():
        if counts.any() and allowed[counts].min() > COARSE:
            share = min(float(allowed[counts].min()), 1.0)
            found.undecided.append(f"sinks that take {share:.0%} of a row or less: {found.precision} hides them")
        return
    _enter_levels(found, totals, noise)
    found.sinks = sinks_of(totals, _shares(found), noise)
    if found.sinks is None:
        found.odd.append(
            f"rows of weights sum to {np.nanmin(totals):.4g} to {np.nanmax(totals):.4g}, which no sink explains"
        )


def _enter_levels(found: Found, totals: Floats, noise: float) -> None:
    """Nothing; enters how far each row of a bias by position is raised above the others, which shows beside a sink."""
    levels = levels_of(totals, _shares(found), noise)
    raised = [head for head, read in enumerate(found.biases) if read.matrix is not None]
    for head in raised:
        found.biases[head] = found.biases[head].raised(levels[head])
    if raised:
        found.undecided.append(
            "how high the sinks are beside a bias by position: both raised alike give the same weights"
        )


def _shares(found: Found) -> Floats:
    """The sum of ``exp(bias)`` over the keys of each row, ``(head, query)``."""
    square = found.exact_square
    allowed, offset = found.allowed(square), found.offset_for(*square)
    return np.stack([bias.shares(allowed[head], offset) for head, bias in enumerate(found.biases)])
