"""Still: the heads of a payload as plain pictures, for where no script runs, such as a notebook that is only read."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from qkv.pictures.page import environment
from qkv.pictures.pyramid import LOW, STEPS
from qkv.pictures.shades import WEIGHT, Shading

PAPER, HEAT, MASKED = (255, 255, 255), tuple(bytes.fromhex(WEIGHT[-1][1:])), (0xED, 0xEB, 0xE6)
"""Colours of the page in its light theme: of a weight of 0, of the largest, and of what may not be attended to."""

LARGE, SMALL = 320, 128
"""Pixels of the longer side of a picture, where it is the only one and where there are several."""


def still(payload: Mapping[str, Any]) -> str:
    """HTML that shows a picture of each head without a script or a style sheet, of a whole payload."""
    heads = [(f"{layer['name']}, {head['name']}", head) for layer in payload["layers"] for head in layer["heads"]]
    level = payload["levels"][0]
    times = max(1, (SMALL if len(heads) > 1 else LARGE) // max(level["rows"], level["columns"]))
    pictures = [(name, _coloured(head["pictures"][0], payload["key_len"], times)) for name, head in heads]
    return environment("qkv.pictures").get_template("still.html").render(payload=payload, pictures=pictures)


def _coloured(picture: str, key_len: int, times: int) -> str:
    """A grayscale picture with a colour for each of its shades, and so many times as wide and high."""
    grays = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))).convert("L")
    shades = np.asarray(grays)
    weights = 2.0 ** (LOW * (255 - np.arange(256)) / STEPS)
    shares = Shading(weights[shades.max()], key_len).shares(weights)
    colours = np.rint(PAPER + shares[:, None] * np.subtract(HEAT, PAPER)).astype(np.uint8)
    colours[0] = MASKED
    coloured = Image.frombytes("P", grays.size, shades.tobytes())
    coloured.putpalette(colours.tobytes())
    written = io.BytesIO()
    ImageOps.scale(coloured, times, Image.Resampling.NEAREST).save(written, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
