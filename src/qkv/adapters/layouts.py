"""Layouts: the order of a candidate's axes, to and from qkv's own ``(batch, head, token, dim)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from qkv.vocabulary import Layout

Array = np.ndarray[Any, np.dtype[Any]]

AXES = "BHTD"

HEADLESS: tuple[Layout, ...] = ("BTD", "TD")
"""Layouts without an axis for heads: they hold one head."""

BATCHLESS: tuple[Layout, ...] = ("HTD", "THD", "TD")
"""Layouts without an axis for sequences: they hold one."""


def to_layout(array: Array, layout: Layout) -> Array:
    """``(batch, head, token, dim)`` in the order of ``layout``; axes that it lacks have size one and are dropped."""
    missing = tuple(place for place, axis in enumerate(AXES) if axis not in layout)
    kept = [axis for axis in AXES if axis in layout]
    return np.transpose(np.squeeze(array, axis=missing), [kept.index(axis) for axis in layout])


def from_layout(array: Array, layout: Layout) -> Array:
    """``layout`` back to ``(batch, head, token, dim)``."""
    kept = [axis for axis in AXES if axis in layout]
    array = np.transpose(array, [layout.index(axis) for axis in kept])
    return np.expand_dims(array, tuple(place for place, axis in enumerate(AXES) if axis not in layout))


def merged_output(array: Array, layout: Layout, sizes: tuple[int, int, int, int]) -> Array | None:
    """An array the candidate returned, as ``(batch, query, head*dim)``; None where its shape is no form of the output.

    Args:
        array: what was returned.
        layout: the layout of the inputs; the output has it too, or comes merged as ``(batch, query, head*dim)``.
        sizes: batch, heads, queries and channels of the right output.
    """
    batch, heads, queries, dim = sizes
    by_axis = dict(zip(AXES, sizes, strict=True))
    if array.shape == tuple(by_axis[axis] for axis in layout):
        heads_last = np.transpose(from_layout(array, layout), (0, 2, 1, 3))
        return np.ascontiguousarray(heads_last).reshape(batch, queries, heads * dim)
    if array.shape == (batch, queries, heads * dim):
        return array
    if layout in ("BHTD", "BTHD") and heads != queries:
        other: Layout = "BTHD" if layout == "BHTD" else "BHTD"
        if array.shape == tuple(by_axis[axis] for axis in other):
            return merged_output(array, other, sizes)
    if batch == 1 and array.shape == (queries, heads * dim):
        return array[None]
    return None


_NAMES = {
    "B": ("b", "batch", "bs", "bsz", "n", "nb", "batch_size", "z"),
    "H": ("h", "heads", "head", "nh", "num_heads", "n_heads", "n_head", "hq", "nheads"),
    "T": ("t", "s", "l", "seq", "len", "tokens", "n_tokens", "seq_len", "tq", "lq", "sq", "length", "q_len", "n_ctx",
          "queries", "query", "query_len", "m", "seqlen", "sequence", "time", "token", "tgt_len", "seq_length"),
    "D": ("d", "dim", "head_dim", "hd", "dk", "d_k", "hs", "e", "c", "dh", "d_head", "channels", "features", "embed"),
}  # fmt: skip
_AXIS_OF = {name: axis for axis, names in _NAMES.items() for name in names}


def layouts_said(text: str) -> list[Layout]:
    """Layouts that a docstring, comment or annotation states: ``(B, H, T, D)``, ``"batch seq heads dim"``, ``bhtd``."""
    found: list[Layout] = []
    for words in _groups(text):
        axes = "".join(_AXIS_OF.get(word, "?") for word in words)
        if axes in ("BHTD", "BTHD", "HTD", "THD", "BTD", "TD") and axes not in found:
            found.append(axes)  # type: ignore[arg-type]  # checked against the Layout literals in the line above
    return found


def _groups(text: str) -> Sequence[list[str]]:
    lowered = text.lower()
    bracketed = [re.split(r"[\s,]+", group.strip()) for group in re.findall(r"[\[(]([\w\s,]{3,60})[\])]", lowered)]
    quoted = [group.split() for group in re.findall(r"[\"']([a-z_ ]{5,60})[\"']", lowered)]
    letters = [
        list(word)
        for word in re.findall(r"\b(b[htns]{2}[dkec]|[ht]{2}[dkec]|bhsd|bshd|bhld|blhd|bhnd|bnhd)\b", lowered)
    ]
    return [group for group in (*bracketed, *quoted, *letters) if 2 <= len(group) <= 4]
