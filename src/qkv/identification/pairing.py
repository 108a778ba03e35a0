"""Pairing: bilinear forms that pair channels, read with a few queries of plus and minus ones.

Rope mixes each channel of a key with one other channel of the query. A query of signs then gives the sum or the
difference of the two entries of a column, and a handful of queries, whose signs no two channels share, tell which other
channel it is, and both entries: what takes as many queries as there are channels where they come one at a time.
"""

from __future__ import annotations

import numpy as np

from qkv.identification.box import Floats
from qkv.identification.precision import room

Pairs = tuple[tuple[int, int], ...]

CHECKS = 3
"""Queries beside those that tell channels apart: they show whether a column has more than two entries."""


def codes(width: int, pairs: Pairs = ()) -> tuple[Floats, np.ndarray]:
    """Queries of signs, ``(query, channel)``, and which other channel each may be paired with, ``(channel, channel)``.

    Args:
        width: channels.
        pairs: the pairs where they are known: then two queries will do.
    """
    channels = np.arange(width)
    if pairs:
        first, second = (list(side) for side in zip(*pairs, strict=True))
        may_pair = np.zeros((width, width), dtype=bool)
        may_pair[first, second] = may_pair[second, first] = True
        return np.stack([np.ones(width), np.where(np.isin(channels, second), -1.0, 1.0)]), may_pair
    bits = channels >> np.arange(max(width - 1, 1).bit_length())[:, None] & 1
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), size=(CHECKS, width))
    return np.concatenate([np.ones((1, width)), 1.0 - 2.0 * bits, drawn]), ~np.eye(width, dtype=bool)


def of_pairs(products: Floats, signs: Floats, may_pair: np.ndarray, noise: float) -> Floats | None:
    """The forms, ``(head, key, channel, channel)``; None where columns have more than their own and one other entry.

    Args:
        products: ``signs @ M``, ``(query, head, key, channel)``.
        signs: the queries, see `codes`.
        may_pair: which channels a channel may be paired with.
        noise: relative error of a product.
    """
    # Seen with the sign of its own entry, a column is that entry plus or minus the other one.
    turned = products * signs[:, None, None, :]
    between = signs[:, :, None] * signs[:, None, :]
    even, mean = between.mean(axis=0), turned.mean(axis=0)
    spread = np.where(may_pair, 1 - even**2, 1.0)
    shared = np.einsum("qcb,qhkc->hkcb", between, turned) / len(signs) - even * mean[..., None]
    other = np.where(may_pair, shared / spread, 0.0)
    partner = np.argmax((other**2 * spread).sum(axis=1), axis=-1)[:, None, :]
    heads, keys, channels = np.ogrid[: products.shape[1], : products.shape[2], : products.shape[3]]
    entry = other[heads, keys, channels, partner]
    own = mean - entry * even[channels, partner]
    off = turned - own - entry * between[:, channels, partner]
    if not (np.abs(off) <= room(noise) * np.abs(own).max()).all():
        return None
    form = np.zeros((*own.shape, own.shape[-1]))
    form[heads, keys, partner, channels] = entry
    form[heads, keys, channels, channels] = own
    return form
