"""What are query and key made into: which scale, cap and normalisation, and what turns by position?"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification import rotation, scores
from qkv.identification.box import Floats
from qkv.identification.found import Found
from qkv.identification.precision import coarser
from qkv.identification.visibility import Lengths

MORE_ROWS = (1, 2, 4, 8, 16)
"""How far from the last the rows stand that are read beside it where each sees two keys only."""

PATIENCE = 3.0
"""Seconds that reading the scores may take, did each sequence of a call take as long as a call of its own."""


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters what every set of heads that attend alike makes of query and key."""
    lengths = lengths_for_scores(found)
    for place in scores.places(found.telling(lengths)):
        reader = scores.ScoreReader(found.reader, place, found.precision)
        grown = scores.growth(reader, rng)
        if grown.odd:
            found.odd.append(
                "scores grow neither in a straight line with the query, nor as a capped or a normalised product"
            )
            continue
        found.precision = coarser(found.precision, grown.precision)
        if grown.softcap is not None:
            found.softcap = (grown.softcap, grown.softcap_error)
        if grown.normalised:
            found.normalised = _normalised_over(found, reader, rng)
        forms = scores.forms(reader, grown, rng)
        for head, of_head in zip(place.heads, forms, strict=True):
            found.turnings[head] = rotation.turning(of_head, EPSILON[found.precision])
        _frequencies(found, place, grown, rng)
    _note_what_is_strange(found)


def lengths_for_scores(found: Found) -> Lengths:
    """Lengths to read scores at: the longest, for slow rotations, at which many readings are quick."""
    width = found.box.sizes.head_dim
    readings = 2 * len(scores.STEPS) + width**2
    most = 12 if found.dropout or width > 32 else 24 if width > 16 else 96
    quick = [
        lengths
        for lengths in found.view.squares
        if lengths[0] <= most and readings * found.view.sights[lengths].seconds < PATIENCE
    ]
    return max(quick, default=found.view.squares[0])


def _normalised_over(found: Found, reader: scores.ScoreReader, rng: np.random.Generator) -> Literal["head", "width"]:
    """``width`` where the length of one head's query moves the scores of another."""
    sizes = found.box.sizes
    query = np.repeat(rng.normal(size=(1, 1, sizes.head_dim)), sizes.num_heads, axis=1)
    key = np.repeat(rng.normal(size=(1, 1, sizes.head_dim)), sizes.num_kv_heads, axis=1)
    if len(reader.place.heads) < 2:
        return "head"
    longer = query.copy()
    longer[:, reader.place.heads[-1]] *= 4
    before, after = reader.moved(query, key)[0, 0], reader.moved(longer, key)[0, 0]
    return "head" if np.allclose(before, after, rtol=1e-3, atol=1e-6) else "width"


def _frequencies(found: Found, place: scores.Place, grown: scores.Growth, rng: np.random.Generator) -> None:
    """The rope of the first head of a place, from all keys of its row, and from other places where these are few."""
    noise = EPSILON[found.precision]
    first = found.turnings[place.heads[0]]
    assert first is not None
    read, pairs = {place: first}, first.pairs
    for other in _other_places(found, place) if len(place.keys) < 2 else ():
        forms = scores.forms(scores.ScoreReader(found.reader, other, found.precision), grown, rng, pairs)
        read[other] = rotation.turning(forms[0], noise)
        pairs = pairs or read[other].pairs
    angles: dict[int, Floats] = {}
    for where, turned in read.items():
        if turned.pairs in (pairs, ()):
            # Where nothing turns, query and key stand at the same place.
            of_keys = turned.angles.T if turned.pairs else np.zeros((len(where.keys), len(pairs)))
            of_places = zip((key - where.row for key in where.keys), of_keys, strict=True)
            angles |= {distance: angle for distance, angle in of_places if np.isfinite(angle).all()}
    if not pairs or len(angles) < 2:
        return
    distances = np.array(list(angles), dtype=float)
    found.frequencies = rotation.frequencies(np.stack(list(angles.values()), axis=1), distances, noise)
    found.rope, found.rope_error = rotation.rope_of(found.frequencies, pairs, found.box.sizes.head_dim, noise)
    for head in place.heads:
        of_head = found.turnings[head]
        if of_head is not None and not of_head.pairs:
            found.turnings[head] = replace(of_head, pairs=pairs)


def _other_places(found: Found, place: scores.Place) -> list[scores.Place]:
    """More rows that see the same two keys, and the same row with the two keys in each other's role."""
    (key,) = place.keys
    allowed = found.telling(place.lengths)[place.heads[0]]
    rows = np.flatnonzero(allowed[:, place.reference] & allowed[:, key])
    further = [replace(place, row=int(rows[-1 - step])) for step in MORE_ROWS if step < len(rows)]
    return [replace(place, reference=key, keys=(place.reference,)), *further]


def _note_what_is_strange(found: Found) -> None:
    strange = [
        head
        for head, turned in enumerate(found.turnings)
        if turned is not None and not turned.residual <= 1e4 * EPSILON[found.precision]
    ]
    if strange:
        found.odd.append(
            f"scores of heads {', '.join(map(str, strange))} are query @ M @ key with an M that is no scale and no turn"
        )
