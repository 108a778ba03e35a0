"""The taste of a course exercise: one NumPy function of `x` and the four weight matrices."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal_array, pairs

SOURCE = '''import numpy as np


def split_heads(x, num_heads):
    """(batch, tokens, width) to (batch, heads, tokens, head_dim)"""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(x):
    """(batch, heads, tokens, head_dim) to (batch, tokens, width)"""
    batch, heads, tokens, head_dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * head_dim)


def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads):
    """x: (batch, tokens, width); every weight is (in, out), used as x @ w. Bidirectional."""
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)

    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(query.shape[-1])
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)

    context = np.einsum("bhqk,bhkd->bhqd", weights, value)
    return merge_heads(context) @ w_o
'''

NAME: str | None = "multi_head_attention"
OPTIONS: list[str] = ["--heads", "6"]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48}

SCORES = 'np.einsum("bhqd,bhkd->bhqk", query, key)'
NORMALISE = "weights /= weights.sum(axis=-1, keepdims=True)"
MAXIMUM = "    scores -= scores.max(axis=-1, keepdims=True)\n"
RETURN = "return merge_heads(context) @ w_o"


def over_axis(axis: int) -> Edits:
    """The softmax over another axis."""
    return [("scores.max(axis=-1", f"scores.max(axis={axis}"), ("weights.sum(axis=-1", f"weights.sum(axis={axis}")]


FAULTS: dict[str, Edits] = {
    "value-is-key": [("split_heads(x @ w_v, num_heads)", "split_heads(x @ w_k, num_heads)")],
    "key-value-swapped": [
        ("key = split_heads(x @ w_k,", "key = split_heads(x @ w_v,"),
        ("value = split_heads(x @ w_v,", "value = split_heads(x @ w_k,"),
    ],
    "projection-transposed": [("x @ w_q", "x @ w_q.T")],
    "heads-split-by-view": [
        (
            "x.reshape(batch, tokens, num_heads, width // num_heads).transpose(0, 2, 1, 3)",
            "x.reshape(batch, num_heads, tokens, width // num_heads)",
        ),
    ],
    "strided-read-as-contiguous": [
        (
            "value = split_heads(x @ w_v, num_heads)",
            'value = split_heads(x @ w_v, num_heads)\n    value = value.ravel(order="K").reshape(value.shape)',
        ),
    ],
    "heads-merged-by-view": [
        ("x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads", "x.reshape(batch, tokens, heads")
    ],
    "attends-over-batch": [
        (SCORES, 'np.einsum("bhqd,chqd->qhbc", query, key)'),
        ('np.einsum("bhqk,bhkd->bhqd", weights, value)', 'np.einsum("qhbc,chqd->bhqd", weights, value)'),
    ],
    "scores-transposed": [("bhqd,bhkd->bhqk", "bhkd,bhqd->bhqk")],
    "scale-missing": [(" / np.sqrt(query.shape[-1])", "")],
    "scale-by-model-width": [("np.sqrt(query.shape[-1])", "np.sqrt(x.shape[-1])")],
    "scale-inverted": [("/ np.sqrt(query.shape[-1])", "* np.sqrt(query.shape[-1])")],
    "scale-twice": [("np.sqrt(query.shape[-1])", "query.shape[-1]")],
    "scale-after-softmax": [
        (" / np.sqrt(query.shape[-1])", ""),
        (NORMALISE, NORMALISE + "\n    weights /= np.sqrt(query.shape[-1])"),
    ],
    "scale-other-constant": [("np.sqrt(query.shape[-1])", "np.sqrt(query.shape[-2])")],
    "prefix-block-missing": [
        (MAXIMUM, "    scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)\n" + MAXIMUM)
    ],
    "softmax-over-queries": over_axis(-2),
    "softmax-over-heads-or-batch": over_axis(1),
    "softmax-low-precision": [("weights = np.exp(scores)", "weights = np.exp(scores.astype(np.float16))")],
    "weights-times-key": [("weights, value)", "weights, key)")],
    "output-projection-missing": [(RETURN, "return merge_heads(context)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "projection-transposed: output": [("@ w_o", "@ w_o.T")],
    "projection-transposed: value": [("x @ w_v", "x @ w_v.T")],
    "value-not-projected: x itself": [("split_heads(x @ w_v, num_heads)", "split_heads(x, num_heads)")],
    "softmax-over-heads-or-batch: batch": over_axis(0),
    "scale-other-constant: heads": [("np.sqrt(query.shape[-1])", "np.sqrt(num_heads)")],
    "heads-split-by-view: wrong transpose": [
        (
            "x.reshape(batch, tokens, num_heads, width // num_heads).transpose(0, 2, 1, 3)",
            "x.reshape(batch, num_heads, -1, width // num_heads)",
        ),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("scale-by-model-width", "output-projection-missing"),
    ("heads-merged-by-view", "softmax-over-queries"),
    ("value-is-key", "projection-transposed"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "matmul": [(SCORES, "query @ key.swapaxes(-1, -2)")],
    "no maximum taken off": [(MAXIMUM, "")],
    "scale on the query": [
        (" / np.sqrt(query.shape[-1])", ""),
        (
            "query = split_heads(x @ w_q, num_heads)",
            "query = split_heads(x @ w_q, num_heads)\n    query = query / np.sqrt(query.shape[-1])",
        ),
    ],
    "keys before queries": [
        ("bhqd,bhkd->bhqk", "bhqd,bhkd->bhkq"),
        *over_axis(-2),
        ("bhqk,bhkd->bhqd", "bhkq,bhkd->bhqd"),
    ],
    "float32 softmax": [("weights = np.exp(scores)", "weights = np.exp(scores.astype(np.float32))")],
    "normalised after the mix": [
        ("    " + NORMALISE + "\n", ""),
        ("weights, value)", "weights, value) / weights.sum(axis=-1, keepdims=True)"),
    ],
    "head by head": [
        (RETURN, "return np.concatenate([context[:, h] for h in range(num_heads)], axis=-1) @ w_o"),
    ],
    "sum over heads of slices of w_o": [
        (RETURN, "return sum(c @ w for c, w in zip(context.swapaxes(0, 1), np.split(w_o, num_heads)))"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    weights = [normal_array(48, 48, seed=seed, size=0.3) for seed in range(4)]
    attention = namespace["multi_head_attention"]
    return [attention(normal_array(3, tokens, 48, seed=tokens), *weights, 6) for tokens in (11, 7)]
