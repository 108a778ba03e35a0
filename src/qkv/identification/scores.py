"""Scores from weights: what a query and a key are made into before the softmax.

Within a row, ``log w_ij - log w_ik`` is a difference of scores, free of the row's sum. A key of zeros has the score
zero, so beside one every score can be read. Two questions follow: along one direction, how does the score grow with the
query (softcap, normalisation)? And which bilinear form ``query @ M @ key`` is it (scale, rope)?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification.box import Floats, Sizes
from qkv.identification.pairing import Pairs, codes, of_pairs
from qkv.identification.precision import room, smallest_normal
from qkv.identification.weights import WeightReader

LADDER = ("float64", "float32", "float16", "bfloat16")
"""Precisions that the scores may have been computed in, finest first."""


@dataclass(frozen=True)
class Place:
    """One row to read scores in.

    Attributes:
        heads: the query heads that are read here: they may all attend to the same keys.
        row: the query.
        reference: the visible key that is held at zero.
        keys: the other visible keys.
        lengths: ``query_len`` and ``key_len``.
    """

    heads: tuple[int, ...]
    row: int
    reference: int
    keys: tuple[int, ...]
    lengths: tuple[int, int]


def places(allowed: np.ndarray) -> list[Place]:
    """For each set of heads that may attend alike, the row that sees most.

    Args:
        allowed: ``(head, query, key)``.
    """
    found: dict[bytes, list[int]] = {}
    for head, pairs in enumerate(allowed):
        found.setdefault(pairs.tobytes(), []).append(head)
    result = []
    for heads in found.values():
        pairs = allowed[heads[0]]
        seen = pairs.sum(axis=-1)
        # Of the rows that see most the last one: keys stand on one side of it at every distance.
        row = int(np.flatnonzero(seen == seen.max())[-1])
        keys = np.flatnonzero(pairs[row])
        if len(keys) < 2:
            continue
        # The reference stands farthest from the query, so that the nearest keys are there to be read.
        reference = int(max(keys, key=lambda key: abs(int(key) - row)))
        others = tuple(int(key) for key in keys if key != reference)
        result.append(Place(tuple(heads), row, reference, others, (pairs.shape[0], pairs.shape[1])))
    return result


class ScoreReader:
    """Reads differences of scores at one place.

    Args:
        reader: reads the weights.
        place: the row and its reference.
        precision: the precision that shows in its weights.
    """

    def __init__(self, reader: WeightReader, place: Place, precision: str) -> None:
        self.reader, self.place, self.precision = reader, place, precision
        self.sizes: Sizes = reader.box.sizes
        self.still = self.differences(np.zeros((1, self.sizes.head_dim)), np.zeros((1, self.sizes.head_dim)))[0]

    def differences(self, query: Floats, key: Floats) -> Floats:
        """Score of each key minus the reference's, ``(batch, head, key)``; NaN where a weight is too small to tell.

        Args:
            query: every query's direction, ``(batch, head_dim)``, for all heads; or ``(batch, num_heads, head_dim)``.
            key: every key's but the reference's, likewise; one for all sequences will do.
        """
        place, sizes = self.place, self.sizes
        key = np.repeat(key, len(query), axis=0) if len(key) == 1 else key
        query = query if query.ndim == 3 else np.repeat(query[:, None], sizes.num_heads, axis=1)
        key = key if key.ndim == 3 else np.repeat(key[:, None], sizes.num_kv_heads, axis=1)
        queries = np.repeat(query[:, :, None], place.lengths[0], axis=2)
        keys = np.repeat(key[:, :, None], place.lengths[1], axis=2)
        keys[:, :, place.reference] = 0.0
        weights = self.reader.weights(queries, keys, (place.reference, *place.keys))[:, list(place.heads), place.row]
        least = smallest_normal(self.precision)
        with np.errstate(all="ignore"):
            logs = np.where(weights > least, np.log(weights), np.nan)
        difference: Floats = logs[..., 1:] - logs[..., :1]
        return difference

    def moved(self, query: Floats, key: Floats) -> Floats:
        """The same without the bias: what query and key have changed."""
        return self.differences(query, key) - self.still

    def only(self, key: int) -> ScoreReader:
        """A reader of one of the keys alone, by its number among those of the place."""
        return ScoreReader(self.reader, replace(self.place, keys=(self.place.keys[key],)), self.precision)


@dataclass(frozen=True)
class Growth:
    """How scores grow along one direction.

    Attributes:
        normalised: whether the length of the query, or of the key, makes no difference.
        softcap: ``c`` of ``c * tanh(score / c)``; None where scores grow in a straight line.
        softcap_error: how far off it may be.
        precision: the finest precision that explains the readings.
        odd: whether neither explains them, so that this is no (capped) product.
    """

    normalised: bool
    softcap: float | None
    softcap_error: float
    precision: str
    odd: bool = False


OCTAVE = 3
"""Steps in which the length doubles."""

STEPS: Floats = 2.0 ** (np.arange(-4 * OCTAVE, 10 * OCTAVE + 1) / OCTAVE)
"""Lengths of the query, one sequence each; and again for the opposite query."""


def growth(scores: ScoreReader, rng: np.random.Generator) -> Growth:
    """How the score grows with the query's length, at the first head and the key that moves most."""
    width = scores.sizes.head_dim
    direction = rng.normal(size=width)
    direction /= np.linalg.norm(direction)
    along = 0.5 * direction[None]
    # Of all heads and keys the one that moves most at the first step: rope may have turned another out of the way.
    moving = np.nan_to_num(np.abs(scores.moved(STEPS[:1, None] * along, along)[0]))
    head, key = np.unravel_index(np.argmax(moving), moving.shape)
    read = scores.only(int(key)).moved(np.concatenate([STEPS, -STEPS[::OCTAVE]])[:, None] * along, along)[:, head, 0]
    line, opposite = read[: len(STEPS)], -read[len(STEPS) :]
    uneven = np.nan_to_num(np.abs(line[::OCTAVE] - opposite)) / np.maximum(np.nan_to_num(np.abs(opposite)), 1.0)
    with np.errstate(all="ignore"):
        kept = np.isfinite(line) & (np.abs(line) > 0)
    steps, line = STEPS[kept], line[kept]
    finest = EPSILON[scores.precision]
    for precision in LADDER:
        noise = EPSILON[precision]
        if noise < finest or len(line) <= OCTAVE:
            continue
        allowed = room(noise) * np.maximum(np.abs(line), 1.0)
        if uneven.max() > 2 * room(noise):
            continue
        if _is_flat(line, allowed):
            return Growth(True, None, 0.0, precision)
        if _is_straight(steps, line, allowed):
            return Growth(False, None, 0.0, precision)
        cap = _cap(steps, line, noise)
        if cap is not None and _is_capped(steps, line, cap[0], allowed):
            return Growth(False, cap[0], cap[1], precision)
    return Growth(False, None, 0.0, "bfloat16", odd=True)


def _is_flat(line: Floats, allowed: Floats) -> bool:
    return bool((np.abs(line - line[-1]) <= allowed + 1e-4 * np.abs(line[-1])).all())


def _is_straight(steps: Floats, line: Floats, allowed: Floats) -> bool:
    slope = line[-1] / steps[-1]
    return bool((np.abs(line - slope * steps) <= allowed).all())


def _cap(steps: Floats, line: Floats, noise: float) -> tuple[float, float] | None:
    """The cap and its error, by least squares over cap and slope; None where no cap bends the line."""
    weight = 1 / np.maximum(np.abs(line), 1.0)
    guess = _doubled(line)
    if guess is None:
        return None
    known = np.array([guess, line[0] / steps[0]])
    for _ in range(40):
        here = _capped(known, steps)
        ahead = np.stack([_capped(known * (1 + move), steps) - here for move in 1e-6 * np.eye(2)], axis=1) / 1e-6
        share, *_ = np.linalg.lstsq(ahead * weight[:, None], (line - here) * weight, rcond=None)
        known = known * (1 + np.clip(share, -0.5, 0.5))
        if np.abs(share).max() < 1e-14:
            break
    spread = np.linalg.pinv((ahead * weight[:, None]).T @ (ahead * weight[:, None]))
    cap = float(abs(known[0]))
    return cap, float(cap * max(noise * spread[0, 0] ** 0.5, 1e-14))


def _doubled(line: Floats) -> float | None:
    """A first guess at the cap, from the rule ``tanh(2x) = 2 tanh(x) / (1 + tanh(x)^2)`` for doubled steps."""
    ratio = 2 * line[:-OCTAVE] / line[OCTAVE:] - 1
    bent = np.flatnonzero((ratio > 0) & (ratio < 0.99))
    if not len(bent):
        return None
    # Where the curve bends by about half, cap and slope tell apart best.
    best = bent[np.argmin(np.abs(ratio[bent] - 0.5))]
    return float(abs(line[best]) / ratio[best] ** 0.5)


def _capped(known: Floats, steps: Floats) -> Floats:
    capped: Floats = known[0] * np.tanh(known[1] * steps / known[0])
    return capped


def _is_capped(steps: Floats, line: Floats, cap: float, allowed: Floats) -> bool:
    steep = np.abs(line) < 0.9 * cap
    if not steep.any():
        return False
    slope = uncapped(line[steep], cap)[-1] / steps[steep][-1]
    return bool((np.abs(line - cap * np.tanh(slope * steps / cap)) <= 8 * allowed).all())


def uncapped(scores: Floats, cap: float | None) -> Floats:
    """Scores as they were before the cap."""
    if cap is None:
        return scores
    with np.errstate(all="ignore"):
        free: Floats = cap * np.arctanh(scores / cap)
    return free


def forms(scores: ScoreReader, grown: Growth, rng: np.random.Generator, pairs: Pairs = ()) -> Floats:
    """The bilinear form ``M`` in ``score = query @ M @ key``, ``(head, key, head_dim, head_dim)``.

    Normalised queries and keys have the root mean square 1 here, as qk-norm gives them.

    Args:
        scores: reads the scores.
        grown: how they grow.
        rng: draws the inputs.
        pairs: the channels that are known to turn together; where none are, they are found.
    """
    width = scores.sizes.head_dim
    one = np.eye(width)
    length, unit = _lengths(scores, grown, one)
    scale = _scale_alone(scores, grown, length, unit, rng) if not pairs else None
    if scale is not None:
        return scale[..., None, None] * one
    read = partial(_products, scores, grown, length, unit)
    signs, may_pair = codes(width, pairs)
    # One query with all channels in it tells as much as many, where each key channel meets two of them at most.
    if 2 * len(signs) <= width:
        form = of_pairs(np.stack([read(code) for code in signs]), signs, may_pair, EPSILON[grown.precision])
        if form is not None:
            return form
    return np.stack([read(channel) for channel in one], axis=2)


def _products(scores: ScoreReader, grown: Growth, length: float, unit: float, query: Floats) -> Floats:
    """``query @ M``, ``(head, key, head_dim)``: one channel of the key in each sequence."""
    width = len(query)
    read = scores.moved(length * np.repeat(query[None], width, axis=0), length * np.eye(width))
    share = np.moveaxis(uncapped(read, grown.softcap), 0, -1) / unit
    # The unit vectors of the forms are as long as sqrt(head_dim) once they are normalised.
    return share * np.linalg.norm(query) if grown.normalised else share


def _scale_alone(
    scores: ScoreReader, grown: Growth, length: float, unit: float, rng: np.random.Generator
) -> Floats | None:
    """The scale, ``(head, key)``, where the score is that times ``query . key`` and nothing else; None otherwise.

    One query with all channels in it tells: each channel of the key must bring its own and no other.
    """
    width = scores.sizes.head_dim
    query = rng.uniform(0.5, 1.5, size=width) * rng.choice([-1.0, 1.0], size=width)
    query *= width**0.5 / np.linalg.norm(query) if grown.normalised else 1.0
    per_channel = _products(scores, grown, length, unit, query) / query
    scale = per_channel.mean(axis=-1)
    noise = EPSILON[grown.precision]
    off = np.abs(per_channel - scale[..., None])
    return scale if (off <= room(noise) * np.abs(scale[..., None]) + 8 * noise / unit).all() else None


def diagonal(scores: ScoreReader, grown: Growth) -> float:
    """The scale of the first head, as the key that stands nearest to the query shows it: nothing is turned there."""
    # A turn adds as much to a product as it takes away, so one vector times itself has the mean of all channels.
    signs = codes(scores.sizes.head_dim)[0][-1:] / scores.sizes.head_dim**0.5
    length, unit = _lengths(scores, grown, signs)
    per_key = uncapped(scores.moved(length * signs, length * signs)[0, 0], grown.softcap) / unit
    return float(per_key[np.argmax(np.abs(per_key))])


def _lengths(scores: ScoreReader, grown: Growth, vectors: Floats) -> tuple[float, float]:
    """How long unit vectors are made, and what a score between two of them is worth."""
    if grown.normalised:
        return 1.0, float(scores.sizes.head_dim)
    length = _length(scores, grown, vectors)
    return length, length**2


def _length(scores: ScoreReader, grown: Growth, vectors: Floats) -> float:
    """A length of query and key that brings the scores near 2: large enough to read, small enough not to saturate."""
    length, most = 1.0, 2.0 if grown.softcap is None else min(2.0, 0.5 * grown.softcap)
    for _ in range(6):
        read = scores.moved(length * vectors, length * vectors)
        size = float(np.nanmax(np.abs(read)))
        if not np.isfinite(size) or size == 0.0:
            return length
        if 0.5 * most <= size <= 2 * most:
            break
        length *= (most / size) ** 0.5
        if grown.softcap is None and size > 64 * EPSILON[grown.precision]:
            break  # in a straight line, one step leads there
    return length
