"""Does it drop weights at random, and how coarse are its numbers?"""

from __future__ import annotations

import numpy as np

from qkv.identification.found import Found
from qkv.identification.precision import coarser, precision_of


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters dropout and precision."""
    sizes = found.box.sizes
    query = rng.normal(size=(1, sizes.num_heads, sizes.tokens, sizes.head_dim))
    key = rng.normal(size=(1, sizes.num_kv_heads, sizes.tokens, sizes.head_dim))
    if found.routing.random:
        found.dropout = found.reader.find_dropout(query, key)
    weights = found.reader.weights(query, key) / found.reader.kept
    # Weights that are all alike are exact in any precision.
    shown = precision_of(weights) if np.unique(weights).size > sizes.tokens else found.box.dtype
    found.precision = coarser(shown, found.box.dtype)
    if (weights < 0).any():
        found.odd.append("weights are negative, so they come from no softmax")
