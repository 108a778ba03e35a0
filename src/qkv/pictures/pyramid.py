"""Pyramid: weights as grayscale pictures from coarse to fine; a cell shows the largest weight that it covers."""

from __future__ import annotations

import base64
import io
import zlib
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

Array = np.ndarray

COARSE, FINE = 64, 4096
"""Cells along the longer side of the coarsest picture, and of the finest one, which has a cell for each weight if
there are no more."""

LOW = -24.0
"""Logarithm to base 2 of the smallest weight that is told from 0, half of what float32 resolves beside 1."""

STEPS = 253
"""Steps from the smallest weight, byte 2, to a weight of 1, byte 255. Byte 1 is less, byte 0 masked."""


class Level(NamedTuple):
    """The size of a picture, in cells, and the computed queries and the keys that a cell covers."""

    rows: int
    columns: int
    per_row: int
    per_column: int

    @classmethod
    def of(cls, rows: int, columns: int, side: int) -> Level:
        """The level whose sides have at most so many cells; each covers a power of two."""
        per_row, per_column = (1 << max(0, -(-length // side) - 1).bit_length() for length in (rows, columns))
        return cls(-(-rows // per_row), -(-columns // per_column), per_row, per_column)


def levels(rows: int, columns: int) -> list[Level]:
    """Pictures from coarse to fine, each with twice the cells along a side."""
    sides = [COARSE]
    while sides[-1] < min(FINE, max(rows, columns)):
        sides.append(2 * sides[-1])
    found = [Level.of(rows, columns, side) for side in sides]
    return [level for at, level in enumerate(found) if level not in found[:at]]


def pooled(array: Array, axis: int, first: int, per: int) -> Array:
    """The largest along an axis of each ``per``; the array begins at number ``first``, maybe within a cell."""
    if per == 1:
        return array
    length = array.shape[axis]
    starts = np.arange(first // per * per, first + length, per) - first
    starts[0] = 0
    return np.maximum.reduceat(array, starts, axis=axis)


def shades(weights: Array) -> Array:
    """Weights as bytes: minus infinity is masked, what is beyond 0 or 1 is as 0 or 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.log2(np.clip(weights, 0, 1).astype(np.float32))
    bytes_ = np.where(logarithms < LOW, 1, np.rint(255 - logarithms * (STEPS / LOW)))
    return np.where(weights == -np.inf, 0, bytes_).astype(np.uint8)


def coarser(picture: Array, fine: Level, level: Level) -> Array:
    """A picture at a coarser level of the same pyramid."""
    rows = pooled(picture, 0, 0, level.per_row // fine.per_row)
    return pooled(rows, 1, 0, level.per_column // fine.per_column)


GRAYS = [gray for gray in range(256) for _ in "rgb"]


def png(picture: Array) -> str:
    """The picture as a grayscale PNG in a data URI: as grays, or as a palette of them where that is shorter.

    What Pillow writes of grays is filtered, which is good for stripes, and what it writes of a palette is not.
    """
    grays = Image.fromarray(picture)
    palette = Image.frombytes("P", grays.size, picture.tobytes())
    palette.putpalette(GRAYS)
    written = min(_written(grays, optimize=True), _written(palette, compress_type=zlib.Z_RLE), key=len)
    return "data:image/png;base64," + base64.b64encode(written).decode()


def _written(image: Image.Image, **options: Any) -> bytes:
    held = io.BytesIO()
    image.save(held, "png", **options)
    return held.getvalue()
