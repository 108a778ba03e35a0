"""Weights that somebody has computed: one array or several, with heads and sequences or without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qkv.captures.sequences import sequence_note
from qkv.errors import CandidateError, ShapeError
from qkv.pictures.attention import LayerWeights
from qkv.pictures.weights import Array, as_array, given_heads

AXES = "(query, key), (head, query, key) or (batch, head, query, key)"


def layers_of_weights(
    weights: Any, *, sequence: int = 0, may_attend: Any = None, value: Any = None, layer: int | None = None
) -> tuple[list[LayerWeights], list[str]]:
    """The layers in an array of weights, a row of such arrays, or a mapping of names to them; and how they were read.

    Args:
        weights: each ``(query, key)``, ``(head, query, key)`` or ``(batch, head, query, key)``; of five axes the first
            are the layers. NaN is masked.
        sequence: which sequence of the batch.
        may_attend: booleans that broadcast to the weights, or a mask; None to take zeros that all heads share for it.
        value: ``(num_kv_heads, key, dim)``, of a single layer.
        layer: which layer, in their order; None for all.

    Raises:
        ShapeError: the axes are none of weights, or there is no such layer or sequence.
        CandidateError: they are no numbers that could be weights.
    """
    layers, hidden, notes, arrays = [], [], [], list(_arrays(weights))
    if not arrays:
        raise ShapeError("there are no weights to show: the row of layers is empty")
    if layer is not None and not 0 <= layer < len(arrays):
        held = "one layer" if len(arrays) == 1 else f"{len(arrays)} layers, 0 to {len(arrays) - 1}"
        raise ShapeError(f"there {'is' if len(arrays) == 1 else 'are'} {held}, and layer {layer} was asked for")
    for name, given in arrays if layer is None else arrays[layer : layer + 1]:
        array = _checked(as_array(given, name), name)
        notes += sequence_note(sequence, len(array) if array.ndim == 4 else 1, name)
        array = _of_sequence(array, sequence)
        allowed = _unhidden(array) if may_attend is None else may_attend
        hidden += [name] if may_attend is None and allowed is not None else []
        if allowed is None and not isinstance(given, np.ma.MaskedArray):
            notes += _stray(array, name)
        layers.append(LayerWeights(name, given_heads(array, may_attend=allowed, value=value)))
    where = "" if len(hidden) == len(layers) else f" ({', '.join(hidden)})"
    notes += [f"What is exactly zero in every head is taken for masked{where}"] if hidden else []
    return layers, list(dict.fromkeys(notes))


def _arrays(weights: Any) -> Iterator[tuple[str, Any]]:
    """Each layer's name and array."""
    if isinstance(weights, Mapping):
        yield from ((str(name), one) for name, one in weights.items())
        return
    several = isinstance(weights, Sequence) and all(one is None or hasattr(one, "shape") for one in weights)
    if not several:
        try:
            array = as_array(weights, "weights")
        except ValueError:  # NumPy's word for rows of several lengths
            raise ShapeError(f"the weights are a list whose rows differ in length; weights are {AXES}") from None
        if array.ndim < 5:
            yield "layer 0", array
            return
        weights = array
    # Models hand out None for a layer that has no attention.
    yield from ((f"layer {place}", one) for place, one in enumerate(weights) if one is not None)


def _checked(array: Array, name: str) -> Array:
    """The array, as one that may hold weights."""
    if array.dtype.kind == "b":
        raise CandidateError(f"{name} holds booleans: a mask, and no weights", hint='qkv mask "causal" draws a mask')
    if not 2 <= array.ndim <= 4:
        raise ShapeError(f"{name} has shape {array.shape}; attention weights are {AXES}")
    if 0 in array.shape:
        raise ShapeError(f"{name} has shape {array.shape}: there is nothing in it")
    infinite = np.isinf(array)
    if infinite.any():
        first = [int(place) for place in np.argwhere(infinite)[0]]
        raise CandidateError(
            f"{name} holds {int(infinite.sum())} infinite entries, the first at {first}; weights are shares of one",
            hint="if these are attn_scores: torch.softmax(attn_scores, dim=-1) makes weights of them",
        )
    return array


def _of_sequence(array: Array, sequence: int) -> Array:
    """The heads of one sequence, ``(head, query, key)``."""
    array = array[sequence] if array.ndim == 4 else array
    return array.reshape(-1, *array.shape[-2:])


def _stray(array: Array, name: str) -> list[str]:
    """A sentence on NaN beside numbers, which may be a mask's; rows of nothing else are told of as odd."""
    nothing = np.isnan(array)
    count = int((nothing & ~nothing.all(axis=-1, keepdims=True)).sum())
    return [f"{name} holds entries that are no number, drawn as masked: {count:,}"] if count else []


def _unhidden(array: Array) -> Array | None:
    """Where not every head has a zero, ``(query, key)``; None where no zero is shared, or NaN says what is masked.

    A softmax gives no zeros but for what a mask hides, or numbers too small to be stored.
    """
    zero = (array == 0).all(axis=0)
    return ~zero if zero.any() and not zero.all() and not np.isnan(array).any() else None
