"""Makes docs/picture.svg, the picture of the README: a wrong attention beside the right one.

The candidate hides what comes later only after the softmax, so its weights no longer sum to one. Nothing of it is known
but what it computes: its weights are read from outside. ``python examples/readme_picture.py`` makes the file again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import qkv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = Path(__file__).parent.parent / "docs" / "picture.svg"
TOKENS = ["the", "cat", "sat", "on", "the", "mat"]


def candidate(query, key, value):
    """An attention whose mask comes too late."""
    attn_scores = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
    attn_weights = np.exp(attn_scores) / np.exp(attn_scores).sum(-1, keepdims=True)
    return np.tril(attn_weights) @ value


def picture() -> Figure:
    """The right weights, the candidate's, and the difference."""
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(1, 1, len(TOKENS), 8)) for _ in range(3))
    inputs = qkv.Inputs(query=query, key=key, value=value)
    right = qkv.run_stages(qkv.AttentionSpec(mask=qkv.causal()), inputs).weights
    return qkv.draw(right[0, 0], qkv.read_weights(candidate, query, key)[0, 0], tokens=TOKENS, mask="causal")


if __name__ == "__main__":
    picture().savefig(PICTURE, metadata={"Date": None})
