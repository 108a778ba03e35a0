"""The smallest failing example as a part of the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qkv.oracle import Inputs, Run
from qkv.report.document import Example
from qkv.spec import describe


def example_of(right: Run, got: Any) -> Example:
    """All that the right output is computed from, by name, and both outputs of the sequence that is furthest off.

    Args:
        right: the oracle's finished run.
        got: the candidate's output, ``(batch, query, width)``.
    """
    inputs, expected = right.inputs, right.output
    off = np.where(np.isnan(expected) & np.isnan(got), 0.0, np.nan_to_num(np.abs(expected - got), nan=np.inf))
    shown = int(np.argmax(off.max(axis=(1, 2))))
    words = _size(inputs)
    words += f", handed over as {' + '.join(map(str, inputs.steps))}" if inputs.steps else ""
    words += "" if inputs.batch == 1 else f"; of its {inputs.batch} sequences the output of sequence {shown}"
    tensors = [*_given(inputs), *_learned(inputs)]
    if inputs.earlier is not None:
        tensors += [(f"{name} before", array) for name, array in _given(inputs.earlier)]
    return Example(words, tensors, expected[shown], got[shown], _held_to(right))


def _size(inputs: Inputs) -> str:
    query_len, key_len = inputs.lengths
    tokens = _count(key_len, "token", "tokens")
    if query_len != key_len:
        tokens = f"{_count(query_len, 'query', 'queries')}, {_count(key_len, 'key', 'keys')}"
    if inputs.query is None:
        return f"{tokens} of {inputs.x.shape[-1]} numbers"  # type: ignore[union-attr]  # x is there where query is not
    heads, dim = inputs.query.shape[1], inputs.query.shape[3]
    return f"{tokens} of {dim} numbers, {_count(heads, 'head', 'heads')}"


def _count(amount: int, one: str, many: str) -> str:
    return f"one {one}" if amount == 1 else f"{amount} {many}"


def _given(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """What is handed over with the call."""
    names = ("x", "source", "value_source", "query", "key", "value", "may_attend", "is_token", "document", "bias",
             "sinks")  # fmt: skip
    for name in names:
        if getattr(inputs, name) is not None:
            yield name, getattr(inputs, name)


def _held_to(right: Run) -> str:
    """The spec in words, and how query and key are normalised, which it doesn't say."""
    spec, parameters = right.spec, right.inputs.parameters
    if spec.kv_heads == spec.num_heads:
        spec = spec.but(num_kv_heads=None)
    if spec.value_dim == spec.head_dim:
        spec = spec.but(value_dim=None)
    norm = None if parameters is None else parameters.q_norm
    if norm is None:
        return describe(spec)
    return f"{describe(spec)}, {norm.kind} norms with eps {norm.eps:g}{' times 1 + weight' if norm.plus_one else ''}"


def _learned(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """Each projection's weight, turned so that ``x @ weight`` projects, each norm's, and their biases."""
    for name in ("q_proj", "k_proj", "v_proj", "out_proj", "q_norm", "k_norm"):
        layer = getattr(inputs.parameters, name, None)
        if layer is None:
            continue
        if layer.weight is not None:
            yield (f"{name} weight", layer.weight) if "norm" in name else (f"{name} (in, out)", layer.weight.T)
        if layer.bias is not None:
            yield f"{name} bias", layer.bias
