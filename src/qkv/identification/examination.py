"""Examination: the questions that a box is asked, one after the other, each with inputs made for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from qkv.comparison import EPSILON
from qkv.errors import CandidateError
from qkv.identification import biases, mask_rules, rotation, scores, sums
from qkv.identification.box import Box, Floats, Sizes
from qkv.identification.constants import Reading
from qkv.identification.found import Found
from qkv.identification.precision import coarser, precision_of, smallest_normal
from qkv.identification.routing import Routing, plain_routing
from qkv.identification.visibility import Lengths, sight
from qkv.identification.weights import WeightReader
from qkv.masks import Everything

LONGER = (24, 96, 300)
"""Numbers of tokens that make windows and clipped tables visible, tried while calls are quick."""

MORE_ROWS = (1, 2, 4, 8, 16)
"""How far from the last the rows stand that are read beside it where each sees two keys only."""

PATIENCE = 0.4
"""Seconds that reading the weights of one length may take before no longer one is tried."""

PATIENCE_FOR_SCORES = 3.0
"""Seconds that reading the scores may take, did each sequence of a call take as long as a call of its own."""


def examine(box: Box, routing: Routing, rng: np.random.Generator) -> Found:
    """Everything that can be read off a box.

    Raises:
        CandidateError: it can't be called, or its values carry no code.
    """
    found = Found(box, WeightReader(box, routing), routing)
    _dropout(found, rng)
    _precision(found, rng)
    _sights(found, rng)
    _scores(found, rng)
    _rules(found)
    _biases(found)
    _sums(found)
    _rope(found)
    _corner(found, rng)
    _empty_rows(found, rng)
    return found


def _draw(found: Found, rng: np.random.Generator, lengths: Lengths, gain: float = 1.0) -> tuple[Floats, Floats]:
    sizes = found.box.sizes
    query = gain * rng.normal(size=(1, sizes.num_heads, lengths[0], sizes.head_dim))
    return query, rng.normal(size=(1, sizes.num_kv_heads, lengths[1], sizes.head_dim))


def _dropout(found: Found, rng: np.random.Generator) -> None:
    if found.routing.random:
        tokens = found.box.sizes.tokens
        found.dropout = found.reader.find_dropout(*_draw(found, rng, (tokens, tokens)))


def _precision(found: Found, rng: np.random.Generator) -> None:
    tokens = found.box.sizes.tokens
    weights = found.reader.weights(*_draw(found, rng, (tokens, tokens))) / found.reader.kept
    shown = precision_of(weights) if np.unique(weights).size > tokens else found.box.dtype
    found.precision = coarser(shown, found.box.dtype)
    if (weights < 0).any():
        found.odd.append("weights are negative, so they come from no softmax")


def _sights(found: Found, rng: np.random.Generator) -> None:
    """Looks at equal lengths, growing, and at unequal ones."""
    tokens = found.box.sizes.tokens
    if found.view.look(found.reader, (tokens, tokens), rng) is None:
        raise CandidateError(next(iter(found.view.refused.values())))
    for length in LONGER if not found.dropout else LONGER[:1]:
        started = time.perf_counter()
        found.view.look(found.reader, (length, length), rng)
        if time.perf_counter() - started > PATIENCE or _fades(found, length):
            break
    for lengths in ((tokens - 3, tokens + 2), (tokens + 2, tokens - 3), (1, tokens + 1)):
        if min(lengths) > 0:
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


def _rules(found: Found) -> None:
    """Each head's mask, and where the first query stands, as far as the masks or the positions show it."""
    view, shown = found.view, _first_position(found)
    known: dict[bytes, mask_rules.Rule | None] = {}
    for head in found.heads:
        sets = view.of_head(head)
        key = b"".join(seen.tobytes() for seen in sets.values())
        if key not in known:
            known[key] = mask_rules.rule_of(sets, view.square, shown)
        found.rules.append(known[key])
    if shown:
        found.offset, found.offset_shown = shown, True
    rule = found.one_rule
    if rule is not None:
        found.offset = rule.offsets[0]
        found.offset_shown = bool(shown) or (rule.mask != Everything() and len(rule.offsets) == 1)


def _first_position(found: Found) -> int | None:
    """Where the first query stands at equal lengths, where rope or alibi show that it is not at the first key."""
    if found.frequencies is not None:
        return int(np.rint(found.frequencies.offset)) or None
    square = _for_biases(found)
    seen = found.view.sights[square]
    for head in found.heads:
        read = biases.biases_of(seen.even[head], _exact(found, square)[head], EPSILON[found.precision], 0)
        if read.offset:
            return read.offset
    return None


def _scores(found: Found, rng: np.random.Generator) -> None:
    """Growth and forms, for every set of heads that may attend alike."""
    lengths = _for_scores(found)
    found.turnings = [None for _ in found.heads]
    for place in scores.places(found.allowed(lengths)):
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
    _other_size(found, rng)


def _for_scores(found: Found) -> Lengths:
    """Lengths to read scores at: the longest, for slow rotations, at which many readings are quick."""
    width = found.box.sizes.head_dim
    readings = 2 * len(scores.STEPS) + width**2
    most = 12 if found.dropout or width > 32 else LONGER[0] if width > 16 else LONGER[1]
    squares = sorted(lengths for lengths in found.view.sights if lengths[0] == lengths[1])
    quick = [
        lengths
        for lengths in squares
        if lengths[0] <= most and readings * found.view.sights[lengths].seconds < PATIENCE_FOR_SCORES
    ]
    return max(quick, default=squares[0])


def _normalised_over(found: Found, reader: scores.ScoreReader, rng: np.random.Generator) -> Literal["head", "width"]:
    """``width`` where the length of one head's query moves the scores of another."""
    sizes = found.box.sizes
    query = np.repeat(rng.normal(size=(1, 1, sizes.head_dim)), sizes.num_heads, axis=1)
    key = np.repeat(rng.normal(size=(1, 1, sizes.head_dim)), sizes.num_kv_heads, axis=1)
    if len(reader.place.heads) < 2:
        return "head"
    first, other = reader.place.heads[0], reader.place.heads[-1]
    longer = query.copy()
    longer[:, other] *= 4
    before, after = reader.moved(query, key)[0, 0], reader.moved(longer, key)[0, 0]
    assert first != other
    return "head" if np.allclose(before, after, rtol=1e-3, atol=1e-6) else "width"


def _frequencies(found: Found, place: scores.Place, grown: scores.Growth, rng: np.random.Generator) -> None:
    """The rope of the first head of a place, from all keys of its row, and from more rows where these are few."""
    turned = found.turnings[place.heads[0]]
    if turned is None or not turned.pairs:
        return
    noise = EPSILON[found.precision]
    angles = dict(zip((key - place.row for key in place.keys), turned.angles.T, strict=True))
    allowed = found.allowed(place.lengths)[place.heads[0]]
    rows = np.flatnonzero(allowed[:, place.reference] & allowed[:, place.keys[0]])
    for row in rows[[-1 - step for step in MORE_ROWS if step < len(rows)]] if len(angles) < 2 else ():
        other = replace(place, row=int(row), keys=place.keys[:1])
        forms = scores.forms(scores.ScoreReader(found.reader, other, found.precision), grown, rng)
        again = rotation.turning(forms[0], noise)
        if again.pairs == turned.pairs:
            angles[place.keys[0] - int(row)] = again.angles[:, 0]
    if len(angles) < 2:
        return
    distances = np.array(list(angles), dtype=float)
    found.frequencies = rotation.frequencies(np.stack(list(angles.values()), axis=1), distances, noise)
    found.rope, found.rope_error = rotation.rope_of(found.frequencies, turned.pairs, found.box.sizes.head_dim, noise)


def _scale_in(found: Found) -> float | None:
    read = [turned.scale for turned in found.turnings if turned is not None]
    return float(np.mean(read)) if read else None


def _other_size(found: Found, rng: np.random.Generator) -> None:
    """The scale once more where heads have other widths: only then are 1/head_dim and 0.125 two things."""
    scale, sizes, noise = _scale_in(found), found.box.sizes, EPSILON[found.precision]
    if scale is None:
        return
    lengths = _for_scores(found)
    at = Sizes(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.value_dim, lengths[1], sizes.batched)
    found.scales = [Reading(at, scale, 32 * noise * abs(scale))]
    for width, tokens in ((sizes.head_dim, lengths[1] + 3), (sizes.head_dim + 4, lengths[1] + 3)):
        other = Sizes(sizes.num_heads, sizes.num_kv_heads, width, width, tokens, sizes.batched)
        again = _scale_at(found, other, rng)
        if again is not None:
            found.scales.append(Reading(other, again, 64 * noise * abs(again)))


def _scale_at(found: Found, sizes: Sizes, rng: np.random.Generator) -> float | None:
    box = found.box.resized(sizes) if sizes.head_dim <= 260 else None
    if box is None:
        return None
    routing = found.routing
    if not routing.plain_channels:
        return None
    reader = WeightReader(box, replace(routing, channels=plain_routing(sizes).channels))
    reader.kept = found.reader.kept
    try:
        allowed = _seen(reader, (sizes.tokens, sizes.tokens), rng)
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


def _seen(reader: WeightReader, lengths: Lengths, rng: np.random.Generator) -> np.ndarray:
    """Which keys get weight at these lengths, ``(head, query, key)``."""
    return sight(reader, lengths, rng).allowed


def _biases(found: Found) -> None:
    square = _for_biases(found)
    seen = found.view.sights[square]
    noise = EPSILON[found.precision]
    offset = found.offset_for(*square)
    exact = _exact(found, square)
    found.biases = [biases.biases_of(seen.even[head], exact[head], noise, offset) for head in found.heads]


def _exact(found: Found, lengths: Lengths) -> np.ndarray:
    """Which weights are large enough to have all their digits, ``(head, query, key)``."""
    seen = found.view.sights[lengths]
    return seen.allowed & (seen.even > smallest_normal(found.precision))


def _for_biases(found: Found) -> Lengths:
    """The longest equal lengths of which every weight is still exact."""
    squares = sorted((lengths for lengths in found.view.sights if lengths[0] == lengths[1]), reverse=True)
    return next((lengths for lengths in squares if lengths[0] <= 96), squares[-1])


def _sums(found: Found) -> None:
    """Sinks, from rows that sum to less than one."""
    square = _for_biases(found)
    seen, noise = found.view.sights[square], EPSILON[found.precision]
    counts = seen.allowed.any(axis=-1) & np.isfinite(seen.even).all(axis=-1)
    totals = np.where(counts, seen.even.sum(axis=-1), np.nan)
    off = np.nanmax(np.abs(totals - 1)) if counts.any() else 0.0
    if off <= 64 * noise * max(square[1] ** 0.5, 1.0):
        return
    shares = np.stack([_shares(found, head, seen.allowed[head]) for head in found.heads])
    found.sinks = sums.sinks_of(totals, shares, noise)
    if found.sinks is None:
        found.odd.append(
            f"rows of weights sum to {np.nanmin(totals):.4g} to {np.nanmax(totals):.4g}, which no sink explains"
        )


def _shares(found: Found, head: int, allowed: np.ndarray) -> Floats:
    """The sum of ``exp(bias)`` over the keys of each row."""
    query_len, key_len = allowed.shape
    at = np.arange(query_len) + found.offset_for(query_len, key_len)
    bias = found.biases[head].added(np.arange(key_len)[None, :] - at[:, None])
    shares: Floats = np.where(allowed, np.exp(bias), 0.0).sum(axis=-1)
    return shares


def _rope(found: Found) -> None:
    strange = [
        head
        for head, turned in enumerate(found.turnings)
        if turned is not None and not turned.residual <= 1e4 * EPSILON[found.precision]
    ]
    if strange:
        found.odd.append(
            f"scores of heads {', '.join(map(str, strange))} are query @ M @ key with an M that is no scale and no turn"
        )


def _corner(found: Found, rng: np.random.Generator) -> None:
    """Where the queries stand when there are fewer than keys, from rope or alibi where no mask says it."""
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
        place = next(iter(scores.places(found.allowed(lengths))), None)
        if place is None:
            continue
        reader = scores.ScoreReader(found.reader, place, found.precision)
        grown = scores.Growth(found.normalised is not None, found.softcap[0] if found.softcap else None, 0.0, "")
        turned = rotation.turning(scores.forms(reader, grown, rng)[0], EPSILON[found.precision])
        if len(turned.pairs) != len(found.frequencies.radians):
            continue
        distance = float(place.keys[0] - place.row)
        offset = rotation.offset_at(found.frequencies, turned.angles[:, 0], distance, EPSILON[found.precision])
        _settle(found, lengths, int(np.rint(offset)))
        return


def _corner_from_biases(found: Found) -> None:
    head = next(head for head in found.heads if found.biases[head].kind in ("alibi", "distance"))
    noise = EPSILON[found.precision]
    for lengths in _unequal(found):
        seen = found.view.sights[lengths]
        for offset in (lengths[1] - lengths[0], 0):
            read = biases.biases_of(seen.even[head], seen.allowed[head], noise, offset)
            if read.kind == found.biases[head].kind and _same_bias(read, found.biases[head]):
                _settle(found, lengths, offset)
                return


def _same_bias(one: biases.Biases, other: biases.Biases) -> bool:
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


def _empty_rows(found: Found, rng: np.random.Generator) -> None:
    """Looks at lengths of which the mask leaves some row without keys."""
    rule = found.one_rule
    if rule is None or rule.mask == Everything():
        return
    tokens = found.box.sizes.tokens
    for lengths in ((tokens + 2, tokens - 3), (3 * tokens, tokens - 3), (60, tokens - 3)):
        right = mask_rules.allowed_by(rule.mask, found.offset, lengths, rule.documents)
        empty = ~right.any(axis=-1)
        if not empty.any() or empty.all():
            continue
        seen = found.view.look(found.reader, lengths, rng)
        if seen is None:
            continue
        rows = seen.even[:, empty]
        if np.isnan(rows).any():
            found.empty_row = "nan"
        elif (rows == 0).all():
            found.empty_row = "zero"
        elif np.allclose(rows, 1 / lengths[1], rtol=1e-2):
            found.empty_row = "uniform"
        return
