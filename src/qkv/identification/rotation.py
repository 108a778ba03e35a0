"""Rotation: rope read off the bilinear forms between one query and several keys.

With rope, ``M`` between positions ``i`` and ``j`` is the scale times a rotation by ``(j - i) * frequency`` in each pair
of channels. So the entries off the diagonal say which channels are paired, and the angles how fast each pair turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qkv.identification.box import Floats
from qkv.identification.precision import room
from qkv.positions import Rope, RopeScaling
from qkv.vocabulary import Pairing


@dataclass(frozen=True)
class Turning:
    """What the forms at one place say.

    Attributes:
        scale: what the channels that don't turn are multiplied by, or all of them.
        turned_scale: what the channels that turn are multiplied by.
        pairs: ``(first, second)`` channel of each pair that turns.
        angles: ``(pair, key)``: how far each pair has turned from the query to the key, within half a turn; NaN where a
            key's forms are.
        residual: largest entry of the forms that this doesn't explain, over the scale.
    """

    scale: float
    turned_scale: float
    pairs: tuple[tuple[int, int], ...]
    angles: Floats
    residual: float


def turning(forms: Floats, noise: float) -> Turning:
    """What one head's forms, ``(key, head_dim, head_dim)``, say of scale and rotation.

    Args:
        forms: see `scores.forms`; NaN where weights are too small to tell.
        noise: relative error of an entry.
    """
    size = float(np.nanmax(np.abs(forms)))
    diagonals = np.diagonal(forms, axis1=1, axis2=2)
    off = np.nan_to_num(np.abs(forms - diagonals[..., None] * np.eye(forms.shape[-1]))).max(axis=0)
    pairs = _pairs(off, room(noise) * size)
    if not pairs:
        scale = float(np.nanmean(diagonals))
        return Turning(
            scale,
            scale,
            (),
            np.zeros((0, len(forms))),
            float(np.nanmax(np.abs(forms - scale * np.eye(forms.shape[-1]))) / size),
        )
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    along = (forms[:, first, first] + forms[:, second, second]) / 2
    across = (forms[:, second, first] - forms[:, first, second]) / 2
    turned = float(np.nanmean(np.hypot(along, across)))
    still = [channel for channel in range(forms.shape[-1]) if channel not in {*first, *second}]
    scale = float(np.nanmean(diagonals[:, still])) if still else turned
    angles = np.arctan2(across, along).T
    explained = _rotated(forms.shape, still, scale, pairs, turned, angles)
    return Turning(scale, turned, pairs, angles, float(np.nanmax(np.abs(forms - explained)) / size))


def _pairs(off: Floats, least: float) -> tuple[tuple[int, int], ...]:
    """Channels that reach each other off the diagonal: each with its strongest partner."""
    partner = {int(c): int(np.argmax(row)) for c, row in enumerate(off) if row.max(initial=0.0) > least}
    return tuple((a, b) for a, b in partner.items() if a < b and partner.get(b) == a)


def _rotated(
    shape: tuple[int, ...],
    still: list[int],
    scale: float,
    pairs: tuple[tuple[int, int], ...],
    turned: float,
    angles: Floats,
) -> Floats:
    forms = np.zeros(shape)
    forms[:, still, still] = scale
    for (first, second), angle in zip(pairs, angles, strict=True):
        forms[:, first, first] = forms[:, second, second] = turned * np.cos(angle)
        forms[:, second, first], forms[:, first, second] = turned * np.sin(angle), -turned * np.sin(angle)
    return forms


@dataclass(frozen=True)
class Frequencies:
    """How fast each pair turns.

    Attributes:
        radians: radians per token, pair by pair; negative where a pair turns the other way.
        errors: how far off each may be.
        offset: position of the first query, the first key standing at 0.
        turn: radians per token that can't be told from none: a whole turn from one key that is seen to the next.
    """

    radians: Floats
    errors: Floats
    offset: float
    turn: float = 2 * np.pi


def frequencies(angles: Floats, distances: Floats, noise: float) -> Frequencies:
    """The frequency of each pair from its angles at several distances, and where the queries stand.

    Neighbouring distances give it within half a turn; ever longer spans then make it exact.

    Args:
        angles: ``(pair, distance)``, within half a turn.
        distances: place of the key less place of the query, each once.
        noise: relative error of an entry of the forms.
    """
    order = np.argsort(distances)
    at, angles = distances[order], angles[:, order]
    radians, starts = [], []
    for line in angles:
        slope = _slope(at, line)
        unwrapped = line + 2 * np.pi * np.rint((slope * (at - at[0]) + line[0] - line) / (2 * np.pi))
        slope, start = np.polyfit(at, unwrapped, 1)
        radians.append(slope)
        starts.append(start)
    speeds = np.array(radians)
    errors = np.maximum(2 * noise / max(at[-1] - at[0], 1.0), 1e-14 * np.abs(speeds))
    turn = 2 * np.pi / np.gcd.reduce(np.diff(at).astype(int))
    return Frequencies(speeds, errors, _offset(speeds, np.array(starts), noise), float(turn))


def offset_at(known: Frequencies, angles: Floats, distance: float, noise: float) -> float:
    """Where the queries stand, from the angle of each pair at one distance, the frequencies being known."""
    return _offset(known.radians, angles - known.radians * distance, noise)


def stands_at(known: Frequencies, angles: Floats, distance: float, offset: int, noise: float) -> bool:
    """Whether a query at this offset has these angles to a key at one distance."""
    off = _wrapped(angles - known.radians * (distance - offset))
    return bool((np.abs(off) <= 64 * noise * max(1.0, abs(distance)) + 1e-9).all())


def _slope(at: Floats, line: Floats) -> float:
    """Radians per token: within half a turn from the nearest two keys, then by spans that grow."""
    gaps = np.diff(at)
    nearest = int(np.argmin(gaps))
    step = gaps[nearest]
    slope = float(_wrapped(line[nearest + 1] - line[nearest]) / step)
    for end in range(nearest + 1, len(at)):
        span = at[end] - at[nearest]
        off = _wrapped(line[end] - line[nearest] - slope * span)
        slope += float(off / span)
    return slope


def _offset(speeds: Floats, starts: Floats, noise: float) -> float:
    """The position at which the angle is zero: coarsely from the slow pairs, exactly from the fast ones."""
    usable = np.flatnonzero(np.abs(speeds) > 1e4 * noise)
    place = 0.0
    for pair in sorted(usable, key=lambda pair: abs(speeds[pair])):
        here = -starts[pair] / speeds[pair]
        turn = 2 * np.pi / abs(speeds[pair])
        place = here + turn * np.rint((place - here) / turn)
    return float(place)


def _wrapped(angle: Floats) -> Floats:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def pairing_of(pairs: tuple[tuple[int, int], ...]) -> Pairing | None:
    """The name of a pairing; None where the channels are paired in neither of the two ways."""
    count = len(pairs)
    if sorted(pairs) == [(c, c + count) for c in range(count)]:
        return "halves"
    return "adjacent" if sorted(pairs) == [(2 * c, 2 * c + 1) for c in range(count)] else None


KNOWN_SCALINGS = (
    *(RopeScaling("llama3", factor, length) for factor in (8.0, 32.0, 16.0, 4.0) for length in (8192,)),
    *(
        RopeScaling("yarn", factor, length, truncate=truncate)
        for factor in (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0)
        for length in (2048, 4096, 8192, 16384, 32768)
        for truncate in (True, False)
    ),
)
"""Scalings of published models: their ramps are no straight line, so they are tried rather than fitted."""

KNOWN_BASES = (10000.0, 500000.0, 1000000.0, 150000.0, 100000.0, 50000.0, 160000.0, 8000000.0, 5000000.0, 10000000.0)


def rope_of(
    found: Frequencies, pairs: tuple[tuple[int, int], ...], head_dim: int, noise: float
) -> tuple[Rope | None, float]:
    """The rope with these frequencies and the relative error of its base; None where no rule gives them."""
    pairing = pairing_of(pairs)
    order = np.argsort([first for first, _ in pairs])
    speeds, errors = found.radians[order], found.errors[order]
    dims = 2 * len(pairs)
    if pairing is None or (found.turn > 6 and (speeds <= 0).any()):
        return None, 0.0
    plain = Rope(pairing, dims=None if dims == head_dim else dims)
    # Where keys are seen far apart only, fast pairs are known up to whole turns, and the slow ones make the line.
    for first in range(len(speeds)) if found.turn < 6 else (0,):
        for rope, error in _plain_and_linear(plain, speeds, errors, first):
            if _fits(rope, head_dim, speeds, errors, found.turn):
                return rope, error
    for base in KNOWN_BASES:
        for scaling in KNOWN_SCALINGS:
            rope = replace(plain, base=base, scaling=scaling)
            if _fits(rope, head_dim, speeds, errors, found.turn):
                return rope, 0.0
    return None, 0.0


def _plain_and_linear(plain: Rope, speeds: Floats, errors: Floats, first: int) -> list[tuple[Rope, float]]:
    """A straight line through the logarithms: its slope is the base, its start the linear scaling.

    Args:
        plain: pairing and dims.
        speeds: radians per token of each pair.
        errors: how far off they may be.
        first: the first pair that is known without a whole turn of doubt.
    """
    pairs, count = np.arange(len(speeds))[first:], len(speeds)
    speeds, errors = speeds[first:], errors[first:]
    if (speeds <= 0).any():
        return []
    certainty, logs = speeds / errors, np.log(speeds)
    relative = float(1 / certainty.max())
    weight = float(np.sum(certainty**2 * pairs**2))
    found = []
    if weight:  # through 1 at the first pair: the base alone
        error = float(count / np.sqrt(weight))
        alone = float(np.exp(-np.sum(certainty**2 * pairs * logs) / weight * count))
        found.append((replace(plain, base=_round(alone, error)), error))
    elif abs(logs[0]) <= 16 * relative:
        found.append((plain, 0.0))
    if len(pairs) == 1:
        scaling = RopeScaling("linear", _round(float(1 / speeds[0]), relative))
        return found if weight else [*found, (replace(plain, scaling=scaling), relative)]
    slope, start = np.polyfit(pairs, logs, 1, w=certainty)
    if start < 0:
        free, error = float(np.exp(-slope * count)), float(count / np.sqrt(weight))
        scaling = RopeScaling("linear", _round(float(np.exp(-start)), relative))
        found.append((replace(plain, base=_round(free, error), scaling=scaling), error))
    return found


def _round(value: float, error: float) -> float:
    """The shortest number within the error of a value: 10000 for 9999.9997."""
    for digits in range(1, 16):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= max(error, 1e-12) * abs(value):
            return short
    return value


def _fits(rope: Rope, head_dim: int, speeds: Floats, errors: Floats, turn: float) -> bool:
    right = np.array(rope.frequencies(head_dim))
    off = right - speeds
    return bool((np.abs(off - turn * np.rint(off / turn)) <= 16 * errors + 1e-6 * right).all())
