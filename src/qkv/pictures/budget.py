"""Budget: which pictures fit into the file, and in how many shades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qkv.pictures.pyramid import Level, coarser, png

Array = np.ndarray

STRIDES = (1, 2, 4, 8, 16)
"""Of so many shades one is used. Even the last tells a weight to within a factor of 1.7."""

SAMPLE = 8
"""Heads on which sizes are tried."""

MOST_TO_ONE = 16
"""No more cells than this are made for each byte of room: even pictures of the emptiest weights would not fit."""


class Fitting(NamedTuple):
    """The pictures that fit.

    Attributes:
        levels: their sizes, from coarse to fine.
        pictures: data URIs, ``[head][level]``.
        stride: of how many shades one is used in the finest.
    """

    levels: list[Level]
    pictures: list[list[str]]
    stride: int


def affordable(sizes: Sequence[Level], heads: int, room: int) -> list[Level]:
    """The levels that are worth making; the coarsest is one of them."""
    most = MOST_TO_ONE * room // heads
    return [size for at, size in enumerate(sizes) if at == 0 or size.rows * size.columns <= most]


def fitting(finest: Sequence[Array], sizes: Sequence[Level], room: int) -> Fitting:
    """The pictures of all heads that fit together. The coarsest level is always there.

    The finest level comes before all between, since it tells most; it may have fewer shades.

    Args:
        finest: each head's picture at the finest level, as bytes.
        sizes: all levels, from coarse to fine.
        room: bytes for the data URIs.
    """
    made = {sizes[0]: _encoded(finest, sizes, sizes[0])}
    left = room - _size(made[sizes[0]])
    best, stride = _finest(finest, sizes, left)
    if best:
        made |= best
        left -= sum(map(_size, best.values()))
    for size in sizes[1:]:
        if size not in made and size < max(made):
            pictures = _encoded(finest, sizes, size, room=left)
            made |= {size: pictures} if pictures else {}
            left -= _size(pictures)
    levels = sorted(made)
    return Fitting(levels, [list(of_head) for of_head in zip(*(made[level] for level in levels), strict=True)], stride)


def _finest(finest: Sequence[Array], sizes: Sequence[Level], room: int) -> tuple[dict[Level, list[str]], int]:
    """The finest level that fits but for the coarsest, and the stride of its shades; tried on some heads first."""
    some = finest[:: -(-len(finest) // SAMPLE)]
    for size in reversed(sizes[1:]):
        for stride in STRIDES:
            if _encoded(some, sizes, size, stride, room * len(some) / len(finest)):
                pictures = _encoded(finest, sizes, size, stride, room)
                if pictures:
                    return {size: pictures}, stride
    return {}, 1


def _encoded(
    finest: Sequence[Array], sizes: Sequence[Level], size: Level, stride: int = 1, room: float = float("inf")
) -> list[str]:
    """Each head's picture at one level; none where all of them exceed the room."""
    made: list[str] = []
    for picture in finest:
        made.append(png(fewer_shades(coarser(picture, sizes[-1], size), stride)))
        if _size(made) > room:
            return []
    return made


def fewer_shades(picture: Array, stride: int) -> Array:
    """The picture in one of so many shades; masked cells and those of next to no weight stay what they are."""
    shades = np.arange(256)
    nearest = np.maximum(2, 255 - np.rint((255 - shades) / stride).astype(int) * stride)
    return np.where(shades < 2, shades, nearest).astype(np.uint8)[picture]


def _size(pictures: Sequence[str]) -> int:
    return sum(map(len, pictures))
