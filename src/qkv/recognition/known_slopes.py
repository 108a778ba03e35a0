"""What an attention makes of alibi on its way: slopes, what they are made of, and scores that are biased by them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.oracle import Run
from qkv.oracle.inputs import Array
from qkv.positions import Alibi
from qkv.recognition.known import LOG2_E, PAIRS, Known
from qkv.vocabulary import Stage


def alibi_knowns(run: Run, query: Array, key: Array) -> Iterator[Known]:
    """Slopes and distances, and scores with alibi in the ways that give the same weights.

    With or without a sign, or by the key's position alone, counted from the first key or the last: that moves a whole
    row, and the weights stay.

    Args:
        run: the run, under a fault too.
        query: positions of the queries, ``(query,)``.
        key: positions of the keys, ``(key,)``.
    """
    distance = key[None, :] - query[:, None]
    slopes, scores = _slopes(run, distance), run.before[Stage.BIAS].scores
    batch = len(scores)
    yield from _rows(len(slopes))
    yield Known("alibi slopes", Stage.BIAS, ("head",), slopes, (1.0, -1.0))
    yield Known("distance, without sign", Stage.BIAS, PAIRS[2:], np.abs(distance), (1.0, -1.0), whole=True)
    yield Known("distance from the last key", Stage.BIAS, ("key",), key - key[-1], (1.0, -1.0))
    for far in (distance, -np.abs(distance)):
        bias = np.broadcast_to(slopes[:, None, None] * far, (batch, len(slopes), *distance.shape))
        yield Known("alibi bias", Stage.BIAS, PAIRS, bias, (1.0, -1.0), along="key")
        yield _biased(scores + slopes[:, None, None] * far)
    for counted in (key, key - key[-1]):
        alone = np.broadcast_to(slopes[:, None] * counted, (batch, len(slopes), len(key)))
        yield Known("alibi bias", Stage.BIAS, ("batch", "head", "key"), alone, along="key")
        yield _biased(scores + alone[:, :, None])


def _biased(scores: Array) -> Known:
    return Known("biased scores", Stage.BIAS, PAIRS, scores, (1.0, LOG2_E), maskable=True)


def _slopes(run: Run, distance: Array) -> Array:
    """What the run takes off for each step of distance, ``(head,)``; where it isn't that, what it is meant to."""
    meant = np.asarray((run.spec.alibi or Alibi()).slopes_for(run.spec.num_heads), dtype=float)
    added = run.before[Stage.MASK].scores - run.before[Stage.BIAS].scores
    furthest = np.unravel_index(np.argmin(distance), distance.shape)  # the key that is furthest behind
    if distance[furthest] == 0:
        return meant
    taken = added[0, :, *furthest] / distance[furthest]
    signed, unsigned = (taken[:, None, None] * far for far in (distance, -np.abs(distance)))
    return taken if any(np.allclose(added, one, atol=1e-9) for one in (signed, unsigned)) else meant


def _rows(num_heads: int) -> Iterator[Known]:
    """What the slopes are computed from: of a number that is no power of two, the rows of the powers on both sides."""
    below = 1 << (num_heads.bit_length() - 1)
    for count in dict.fromkeys((below, num_heads, 1 << (num_heads - 1).bit_length())):
        heads = np.arange(1.0, count + 1)
        yield Known("heads counted from 1", Stage.BIAS, ("head",), heads, (1.0, -1.0))
        if count in (below, 2 * below):
            exponents = 8 * heads / count
            yield Known("exponents of alibi", Stage.BIAS, ("head",), exponents, (1.0, -1.0))
            row = 2.0**-exponents
            for order in (row, np.concatenate([row[1::2], row[::2]])):  # the row below, then what fills it up
                yield Known("alibi slopes, a geometric row", Stage.BIAS, ("head",), order, (1.0, -1.0))
