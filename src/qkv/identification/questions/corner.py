"""Where do the queries stand when there are fewer of them than keys, if no mask says it?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification import rotation, scores
from qkv.identification.biases import Biases, biases_of
from qkv.identification.found import Found
from qkv.identification.pairing import Pairs
from qkv.identification.visibility import Lengths


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters the corner that rope or alibi start from."""
    if found.offset_shown:
        return
    if found.frequencies is not None:
        _corner_from_rope(found, rng)
    elif any(read.kind in ("alibi", "distance") for read in found.biases):
        _corner_from_biases(found)


def _unequal(found: Found) -> Sequence[Lengths]:
    return [lengths for lengths in found.view.sights if 1 < lengths[0] < lengths[1]]


def _corner_from_rope(found: Found, rng: np.random.Generator) -> None:
    assert found.frequencies is not None
    square = int(np.rint(found.frequencies.offset))
    if square:
        found.offset, found.offset_shown = square, True
        return
    for lengths in _unequal(found):
        place = next(iter(scores.places(found.telling(lengths))), None)
        if place is None:
            continue
        reader = scores.ScoreReader(found.reader, place, found.precision)
        grown = scores.Growth(
            found.normalised is not None, found.softcap[0] if found.softcap else None, 0.0, found.precision
        )
        forms = scores.forms(reader, grown, rng, _pairs(found))
        turned = rotation.turning(forms[0], EPSILON[found.precision])
        if len(turned.pairs) != len(found.frequencies.radians) or not np.isfinite(turned.angles[:, 0]).all():
            continue
        _settle(found, lengths, _position(found, turned, lengths, float(place.keys[0] - place.row)))
        return


def _pairs(found: Found) -> Pairs:
    """The channels that are known to turn together."""
    return next((turned.pairs for turned in found.turnings if turned is not None and turned.pairs), ())


def _position(found: Found, turned: rotation.Turning, lengths: Lengths, distance: float) -> int:
    """Where the first query stands: at one of the two corners if the angles allow it, else at the nearest place."""
    assert found.frequencies is not None
    noise = EPSILON[found.precision]
    for offset in (lengths[1] - lengths[0], 0):
        if rotation.stands_at(found.frequencies, turned.angles[:, 0], distance, offset, noise):
            return offset
    return int(np.rint(rotation.offset_at(found.frequencies, turned.angles[:, 0], distance, noise)))


def _corner_from_biases(found: Found) -> None:
    head = next(head for head in found.heads if found.biases[head].kind in ("alibi", "distance"))
    noise = EPSILON[found.precision]
    for lengths in _unequal(found):
        seen = found.view.sights[lengths]
        for offset in (lengths[1] - lengths[0], 0):
            read = biases_of(seen.even[head], seen.allowed[head], noise, offset)
            same = read.kind == found.biases[head].kind and _same_bias(read, found.biases[head])
            if same and _same_sink(found, read, head, lengths, offset):
                _settle(found, lengths, offset)
                return


def _same_sink(found: Found, bias: Biases, head: int, lengths: Lengths, offset: int) -> bool:
    """Whether a sink, where there is one, takes the weight that it would: it sees what a whole row is raised by."""
    if found.sinks is None:
        return True
    seen = found.view.sights[lengths]
    shares = bias.shares(seen.allowed[head], offset)
    sums = shares / (shares + np.exp(found.sinks[0][head]))
    return bool(np.allclose(sums, seen.even[head].sum(axis=-1), rtol=1e-4))


def _same_bias(one: Biases, other: Biases) -> bool:
    if one.kind == "alibi":
        return one.signed == other.signed and bool(np.isclose(one.slope, other.slope, rtol=1e-3))
    ours, theirs = one.table or {}, other.table or {}
    return all(np.isclose(ours[step], theirs[step], atol=1e-3) for step in ours.keys() & theirs.keys())


def _settle(found: Found, lengths: Lengths, offset: int) -> None:
    found.offset_shown = True
    if offset == lengths[1] - lengths[0]:
        found.offset = "bottom_right"
    else:
        found.offset = "top_left" if offset == 0 else offset
