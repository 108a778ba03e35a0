"""Known arrays on the way to a normalised query and key: their squares, the mean of these, what is divided by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.oracle import Norm, Run
from qkv.oracle.inputs import Array
from qkv.recognition.known import KEYS, QUERIES, Known, in_heads
from qkv.vocabulary import Stage


def norm_knowns(run: Run) -> Iterator[Known]:
    """The steps of normalising query and key, over each head or the whole width."""
    spec, given, parameters = run.spec, run.before[Stage.HEADS], run.inputs.parameters
    if spec.qk_norm is None:
        return
    for name, axes, heads in (("query", QUERIES, spec.num_heads), ("key", KEYS, spec.kv_heads)):
        norm = getattr(parameters, f"{name[0]}_norm", None) or Norm()
        array = in_heads(getattr(given, name), heads)
        over = (1, 3) if spec.qk_norm == "width" else (3,)
        yield from _steps(name, axes, array, norm, over)


def _steps(name: str, axes: tuple[str, ...], x: Array, norm: Norm, over: tuple[int, ...]) -> Iterator[Known]:
    if norm.weight is not None:
        weight = np.reshape(norm.weight, [x.shape[axis] for axis in over])
        for array in (weight, 1 + weight) if norm.plus_one else (weight,):
            yield Known(f"{name[0]}_norm.weight", None, tuple(axes[axis] for axis in over), array)
    kept = tuple(axis for number, axis in enumerate(axes) if number not in over)
    if norm.kind == "layer":
        mean = x.mean(axis=over, keepdims=True)
        yield Known(f"mean of the {name}", Stage.HEADS, kept, mean.squeeze(over))
        x = x - mean
        yield Known(f"{name} less its mean", Stage.HEADS, axes, x)
    square = x * x
    yield Known(f"{name}, squared", Stage.HEADS, axes, square)
    total = square.sum(axis=over, keepdims=True)
    if norm.kind == "l2":
        length = np.maximum(np.sqrt(total), norm.eps)
        rows = {"sum of squares": total, "length": length}
    else:
        mean = square.mean(axis=over, keepdims=True)
        length = np.sqrt(mean + norm.eps)
        rows = {
            "mean of squares": mean,
            "mean of squares and eps": mean + norm.eps,
            "root of the mean of squares": length,
        }
    for what, row in {**rows, "one over its size": 1 / length}.items():
        yield Known(f"{name}, {what}", Stage.HEADS, kept, row.squeeze(over))
    yield Known(f"{name} over its size", Stage.HEADS, axes, x / length)
