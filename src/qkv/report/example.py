"""The smallest failing example as a part of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qkv.oracle import Inputs
from qkv.report.document import Example

MOST_NUMBERS = 60
"""Arrays with more numbers than this are named and not printed."""


def example_of(inputs: Inputs, expected: Any, got: Any) -> Example:
    """The example's inputs by name, and the right and the given output of the sequence that is furthest off."""
    off = np.where(np.isnan(expected) & np.isnan(got), 0.0, np.nan_to_num(np.abs(expected - got), nan=np.inf))
    shown = int(np.argmax(off.max(axis=(1, 2))))
    query_len, key_len = inputs.lengths
    queries = "one query" if query_len == 1 else f"{query_len} queries"
    tokens = f"{key_len} tokens" if query_len == key_len else f"{queries}, {key_len} keys"
    if inputs.query is not None:
        heads, dim = inputs.query.shape[1], inputs.query.shape[3]
        words = f"{tokens} of {dim} numbers, {'one head' if heads == 1 else f'{heads} heads'}"
    else:
        words = f"{tokens} of {inputs.x.shape[-1]} numbers"  # type: ignore[union-attr]  # x is there where query is not
    words += "" if inputs.batch == 1 else f"; of its {inputs.batch} sequences the output of sequence {shown}"
    names = ("x", "source", "query", "key", "value", "may_attend", "is_token", "document", "bias", "sinks")
    tensors = [(name, getattr(inputs, name)) for name in names if getattr(inputs, name) is not None]
    tensors += [(name, array) for name, array in _weights(inputs) if all(a.size <= MOST_NUMBERS for _, a in tensors)]
    return Example(
        words, [(name, array) for name, array in tensors if array.size <= MOST_NUMBERS], expected[shown], got[shown]
    )


def _weights(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """Each projection's weight, turned so that ``x @ weight`` projects, and its bias."""
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        projection = getattr(inputs.parameters, name, None)
        if projection is not None:
            yield f"{name} (in, out)", projection.weight.T
            if projection.bias is not None:
                yield f"{name} bias", projection.bias
