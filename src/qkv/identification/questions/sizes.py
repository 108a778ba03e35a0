"""How does the scale follow from the sizes: is it 1/head_dim, or 0.125?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qkv.comparison import EPSILON
from qkv.errors import CandidateError
from qkv.identification import scores
from qkv.identification.box import Sizes
from qkv.identification.constants import Reading
from qkv.identification.found import Found
from qkv.identification.questions.scores import lengths_for_scores
from qkv.identification.routing import plain_routing
from qkv.identification.visibility import sight

WIDEST = 260
"""Channels of the widest heads that the scale is read at."""


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters the scale as it is read here, with more tokens, and with wider heads."""
    read = [turned.scale for turned in found.turnings if turned is not None]
    if not read:
        return
    scale, sizes, noise = float(np.mean(read)), found.box.sizes, EPSILON[found.precision]
    lengths = lengths_for_scores(found)
    at = Sizes(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.value_dim, lengths[1], sizes.batched)
    found.scales = [Reading(at, scale, 32 * noise * abs(scale))]
    for width, tokens in ((sizes.head_dim, lengths[1] + 3), (sizes.head_dim + 4, lengths[1] + 3)):
        other = Sizes(sizes.num_heads, sizes.num_kv_heads, width, width, tokens, sizes.batched)
        again = _scale_at(found, other, rng)
        if again is not None:
            found.scales.append(Reading(other, again, 64 * noise * abs(again)))


def _scale_at(found: Found, sizes: Sizes, rng: np.random.Generator) -> float | None:
    box = found.box.resized(sizes) if sizes.head_dim <= WIDEST else None
    if box is None:
        return None
    routing = found.routing
    if not routing.plain_channels:
        return None
    reader = found.reader.of(box, replace(routing, channels=plain_routing(sizes).channels))
    try:
        allowed = sight(reader, (sizes.tokens, sizes.tokens), rng).allowed
        place = next(iter(scores.places(allowed)), None)
        if place is None:
            return None
        beside = scores.ScoreReader(reader, place, found.precision)
        grown = scores.growth(beside, rng)
        if grown.odd:
            return None
        return scores.diagonal(beside, grown)
    except CandidateError as error:
        if error.fatal:
            raise
        return None
