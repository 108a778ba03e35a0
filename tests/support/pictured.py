"""What a payload says, read as the page reads it."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

MASKED = -np.inf


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def integers(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<u4")


def picture(uri: str) -> np.ndarray:
    """The bytes of a picture, as a canvas gives the red of each of its pixels."""
    head, _, text = uri.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        shown = np.asarray(image.convert("RGB"))
    assert (shown == shown[:, :, :1]).all(), "it is no gray"
    return shown[:, :, 0]


def shade(weight: float, low: float = -24.0) -> int:
    """The byte of a weight, by what viewer/src/payload.ts says of it."""
    if weight == MASKED:
        return 0
    weight = min(max(weight, 0.0), 1.0)
    if weight < 2**low:
        return 1
    return 255 - round(253 * np.log2(weight) / low)


def heads(payload: dict[str, Any]) -> list[dict[str, Any]]:
    return [head for layer in payload["layers"] for head in layer["heads"]]
