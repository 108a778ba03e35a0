"""Heads beside those that they should equal: which differ, and where first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qkv.pictures.attention import Focus, LayerWeights
from qkv.pictures.weights import Array, HeadWeights

SAME = 1e-3
"""How far a weight may be off and still be shown as the right one; qkv check judges by what rounding allows."""


def focus_of(layers: Sequence[LayerWeights]) -> Focus | None:
    """The first head that differs from the one that it should equal; None where no head should equal another."""
    heads = {f"{place}.{at}": head for place, layer in enumerate(layers) for at, head in enumerate(layer.heads)}
    compared = [name for name, head in heads.items() if head.against in heads]
    if not compared:
        return None
    own = dense([heads[name] for name in compared])
    right = dense([heads[str(heads[name].against)] for name in compared])
    off = np.abs(own - right) > SAME  # head query key
    first = {name: _first(one) for name, one in zip(compared, off, strict=True) if one.any()}
    if not first:
        return Focus(compared[0], said="The weights are those that they should be")
    name, (query, key) = next(iter(first.items()))
    at = compared.index(name)
    many = f"All {len(compared)}" if len(first) == len(compared) else f"{len(first)} of {len(compared)}"
    said = (
        f"{many} heads differ from what they should be. The first difference is in {heads[name].name}: query {query} "
        f"gives {own[at, query, key]:.4f} to key {key}, and should give {right[at, query, key]:.4f}"
    )
    return Focus(name, cell=(query, key), said=said, wrong=first)


def dense(heads: Sequence[HeadWeights]) -> Array:
    """All weights of some small heads, ``(head, query, key)``, 0 where a query may not attend."""
    weights = np.zeros((len(heads), *heads[0].shape))
    for at, head in enumerate(heads):
        rows = head.rows(slice(0, head.shape[0]))
        weights[at][:, rows.keys] = np.nan_to_num(rows.weights)
    return weights


def _first(off: Array) -> tuple[int, int]:
    query, key = np.argwhere(off)[0]
    return int(query), int(key)
