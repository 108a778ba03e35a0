"""Fused calls: one operation that makes scores, weights and context, whose arguments say how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qkv.adapters.recording import Operation, Ref
from qkv.scripts.known import Array, Known
from qkv.scripts.moves import products, softmax
from qkv.scripts.reading import Reading, refs

FUSED = frozenset({"scaled_dot_product_attention"})


def chains(reading: Reading, operation: Operation) -> Iterator[Known]:
    """The contexts that a fused call may make, with the stages that led there."""
    made = reading.made_by[operation.results[0]]
    given = [reading.sights.get(value) for value in refs([operation.arguments, operation.keywords])]
    keywords = operation.keywords
    tokens = [sight.known for sight in given[:3] if sight is not None and sight.known.kind == "tokens"]
    if len(tokens) < 3:
        return
    query, key, value = tokens
    scores = next(products(query, key), None)
    if scores is None or scores.slip:
        return
    scores = replace(scores, made=made)
    scale = keywords.get("scale")
    factor = float(scale) if isinstance(scale, int | float) else query.array.shape[-1] ** -0.5
    scaled = replace(scores, array=scores.array * factor, move="scale", sources=(scores,), number=factor)
    shape = scaled.array.shape
    if keywords.get("is_causal"):
        scaled = _masked(scaled, np.broadcast_to(np.tri(*shape[-2:]) > 0, shape))
    given_mask = keywords.get("attn_mask")
    if isinstance(given_mask, Ref):
        mask = reading.array(given_mask.value)
        visible = mask if mask.dtype == bool else mask > -1e4
        scaled = _masked(scaled, np.broadcast_to(visible, shape))
    weights = Known("weights", scaled.axes, softmax(scaled.array, -1), "softmax", (scaled,), over="key", made=made)
    # A row that sees nothing is NaN in some releases, and zero in others.
    for one in (weights, replace(weights, array=np.nan_to_num(weights.array))):
        for mixed in products(one, value):
            if not mixed.slip and mixed.over == "key":
                yield mixed


def _masked(scores: Known, visible: Array) -> Known:
    array = np.where(visible, scores.array, -np.inf)
    return replace(scores, array=array, move="mask", sources=(scores,), number=-np.inf, visible=visible)
