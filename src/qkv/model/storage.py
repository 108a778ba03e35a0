"""What the package holds of the embedded model: its words and its weights, as NumPy reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from qkv.model.vocabulary import Vocabulary

WORDS = Path(__file__).with_name("words.txt")
WEIGHTS = Path(__file__).with_name("weights.safetensors")


def vocabulary() -> Vocabulary:
    """The words of the embedded model."""
    return Vocabulary(WORDS.read_text(encoding="utf-8").split())


def weights() -> dict[str, NDArray[np.float32]]:
    """The arrays of the embedded model by name, each matrix ``(out, in)``; stored in float16."""
    return {name: array.astype(np.float32) for name, array in load_file(WEIGHTS).items()}
