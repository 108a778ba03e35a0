"""Tensors that were handed over: weights, or query and key."""

from __future__ import annotations

from typing import Any

from qkv.captures.assembling import assembled
from qkv.captures.query_key import query_and_key, tensors_of
from qkv.captures.weights import layers_of_weights
from qkv.inference import Intention
from qkv.pictures.view import AttentionView


def view_of_weights(
    weights: Any, *, mask: Any = None, value: Any = None, sequence: int = 0, layer: int | None = None
) -> AttentionView:
    """Weights as they are, see `layers_of_weights`.

    Args:
        weights: an array, a row of arrays, or a mapping of names to arrays.
        mask: booleans that broadcast to them, or a mask of qkv; None to take zeros that all heads share for it.
        value: ``(num_kv_heads, key, dim)``, of a single layer.
        sequence: which sequence of the batch.
        layer: which layer; None for all.

    Raises:
        ShapeError: they have other axes than weights, or there is no such layer or sequence.
        CandidateError: they are no numbers that could be weights.
    """
    layers, notes = layers_of_weights(weights, sequence=sequence, may_attend=mask, value=value, layer=layer)
    return assembled(layers, title="attention weights", notes=notes)


def view_of_query_and_key(
    query: Any, key: Any, value: Any, said: Intention, *, layout: str | None = None, sequence: int = 0
) -> AttentionView:
    """The weights that a query and a key make under a spec, computed by the oracle where they are looked at.

    Args:
        query: in any order of axes that is usual, ``(batch, num_heads, query, head_dim)`` the likeliest.
        key: likewise.
        value: likewise; None where there is none.
        said: the spec, and which of its fields were said.
        layout: order of the axes; None to tell it from the shapes.
        sequence: which sequence of the batch.

    Raises:
        ShapeError: a tensor is empty, or there is no such sequence.
        CandidateError: the shapes fit no reading, or the tensors hold no real numbers.
    """
    arrays = {"query": query, "key": key} | ({} if value is None else {"value": value})
    read = query_and_key(tensors_of(arrays), said, layout)
    layer, notes = read.layer("attention", sequence)
    offset = read.reading.spec.query_offset
    return assembled([layer], title="attention weights", notes=notes, query_offset=offset)
