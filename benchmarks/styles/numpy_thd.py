"""The taste of a porter checking a kernel: NumPy, `(tokens, heads, d)`, a loop over heads, grouped heads and ALiBi."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal_array, pairs

SOURCE = '''import math

import numpy as np


def slopes(n_heads):
    """One slope a head: a geometric sequence, for a head count that is no power of two with every other one between."""
    closest = 2 ** math.floor(math.log2(n_heads))
    m = [2.0 ** (-8.0 * (i + 1) / closest) for i in range(closest)]
    m += [2.0 ** (-4.0 * (2 * i + 1) / closest) for i in range(n_heads - closest)]
    return np.array(m)


def gqa_alibi_attention(q, k, v):
    """Causal attention with linear biases.

    q (query_len, n_heads, d), k and v (key_len, n_kv_heads, d); the last query stands at the last key.
    """
    query_len, n_heads, d = q.shape
    key_len, n_kv_heads, _ = k.shape
    group = n_heads // n_kv_heads
    m = slopes(n_heads)

    query_pos = np.arange(query_len) + (key_len - query_len)
    key_pos = np.arange(key_len)
    distance = query_pos[:, None] - key_pos[None, :]

    out = np.zeros((query_len, n_heads, v.shape[-1]), dtype=q.dtype)
    for h in range(n_heads):
        kv = h // group
        scores = q[:, h] @ k[:, kv].T
        scores = scores / np.sqrt(d)
        scores = scores - m[h] * distance
        scores = np.where(distance >= 0, scores, -np.inf)
        scores = scores - scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        p = p / p.sum(axis=1, keepdims=True)
        out[:, h] = p @ v[:, kv]
    return out
'''

NAME: str | None = None
OPTIONS: list[str] = ["--layout", "THD", "--heads", "6", "--kv-heads", "3", "--causal", "--alibi"]
SPEC: dict[str, Any] = {"num_heads": 6, "num_kv_heads": 3, "causal": True, "alibi": True, "out_proj": False}

SCALE = "        scores = scores / np.sqrt(d)\n"
ALIBI = "        scores = scores - m[h] * distance\n"
MASK = "        scores = np.where(distance >= 0, scores, -np.inf)\n"
NORMALISE = "p = p / p.sum(axis=1, keepdims=True)"
SCORES = "scores = q[:, h] @ k[:, kv].T"

FAULTS: dict[str, Edits] = {
    "kv-heads-tiled": [("kv = h // group", "kv = h % n_kv_heads")],
    "kv-head-divisor": [("kv = h // group", "kv = h // n_kv_heads")],
    "strided-read-as-contiguous": [
        (
            "    query_len, n_heads, d = q.shape",
            '    q, k, v = [np.ravel(a, order="K").reshape(a.shape) for a in (q, k, v)]\n'
            "    query_len, n_heads, d = q.shape",
        ),
    ],
    "weights-times-key": [("p @ v[:, kv]", "p @ k[:, kv]")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("np.sqrt(d)", "np.sqrt(n_heads * d)")],
    "scale-inverted": [("scores / np.sqrt(d)", "scores * np.sqrt(d)")],
    "scale-twice": [("np.sqrt(d)", "d")],
    "scale-after-softmax": [(SCALE, ""), (NORMALISE, NORMALISE + " / np.sqrt(d)")],
    "scale-other-constant": [("np.sqrt(d)", "np.sqrt(key_len)")],
    "alibi-slopes": [
        ("    closest = 2 ** math.floor(math.log2(n_heads))\n", ""),
        (
            "    m = [2.0 ** (-8.0 * (i + 1) / closest) for i in range(closest)]\n"
            "    m += [2.0 ** (-4.0 * (2 * i + 1) / closest) for i in range(n_heads - closest)]\n",
            "    m = [2.0 ** (-8.0 * (i + 1) / n_heads) for i in range(n_heads)]\n",
        ),
    ],
    "alibi-sign": [("scores - m[h] * distance", "scores + m[h] * distance")],
    "bias-scaled": [(ALIBI, ""), (SCORES + "\n", SCORES + " - m[h] * distance\n")],
    "causal-missing": [(MASK, "")],
    "causal-strict": [("distance >= 0", "distance > 0")],
    "causal-one-ahead": [("distance >= 0", "distance >= -1")],
    "causal-inverted": [("distance >= 0", "distance < 0")],
    "causal-corner": [
        ("np.where(distance >= 0,", "np.where(np.tri(query_len, key_len, dtype=bool),"),
    ],
    "mask-added-as-number": [(MASK, "        scores = scores + (distance >= 0)\n")],
    "masked-scores-zeroed": [("-np.inf", "0.0")],
    "mask-after-softmax": [(MASK, ""), (NORMALISE, NORMALISE + " * (distance >= 0)")],
    "mask-fill-too-small": [("-np.inf", "-8.0")],
    "softmax-over-queries": [("p.sum(axis=1", "p.sum(axis=0"), ("scores.max(axis=1", "scores.max(axis=0")],
    "softmax-low-precision": [("p = np.exp(scores)", "p = np.exp(scores.astype(np.float16))")],
}
MORE_FAULTS: dict[str, Edits] = {
    "alibi-slopes: first exponent 0": [("-8.0 * (i + 1) / closest", "-8.0 * i / closest")],
    "alibi-slopes: reversed": [("return np.array(m)", "return np.array(m)[::-1]")],
    "kv-head-divisor: always the first": [("kv = h // group", "kv = 0")],
    "causal-missing: absolute distance": [
        (MASK, ""),
        ("query_pos[:, None] - key_pos[None, :]", "abs(query_pos[:, None] - key_pos[None, :])"),
    ],
    "alibi-missing: never subtracted": [(ALIBI, "")],
}
PAIRS = pairs(
    FAULTS,
    ("kv-heads-tiled", "alibi-sign"),
    ("scale-missing", "alibi-slopes"),
    ("causal-one-ahead", "kv-head-divisor"),
    ("causal-missing", "scale-by-model-width"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "slope times the key's place": [("scores - m[h] * distance", "scores + m[h] * key_pos[None, :]")],
    "fill -1e5": [("-np.inf", "-1e5")],
    "heads repeated first": [
        (
            "    m = slopes(n_heads)\n",
            "    m = slopes(n_heads)\n    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)\n",
        ),
        ("kv = h // group", "kv = h"),
    ],
    "scale on the query": [(SCALE, ""), (SCORES, "scores = (q[:, h] / np.sqrt(d)) @ k[:, kv].T")],
    "alibi scaled back": [(ALIBI, ""), (SCORES + "\n", SCORES + " - np.sqrt(d) * m[h] * distance\n")],
    "float32 softmax": [("p = np.exp(scores)", "p = np.exp(scores.astype(np.float32))")],
    "mask after softmax, renormalised": [
        (MASK, ""),
        (NORMALISE, "p = p * (distance >= 0)\n        " + NORMALISE),
    ],
    "causal by tri": [("distance >= 0", "np.tri(query_len, key_len, key_len - query_len, dtype=bool)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs with equal lengths, with short queries, and on arrays that are not contiguous."""
    attention = namespace["gqa_alibi_attention"]
    outputs = []
    for query_len, key_len in ((11, 11), (4, 11), (1, 5)):
        q = normal_array(query_len, 6, 8, seed=query_len)
        k, v = normal_array(key_len, 3, 8, seed=7), normal_array(key_len, 3, 8, seed=8)
        outputs.append(attention(q, k, v))
    q, k, v = (normal_array(heads, 7, 8, seed=heads).transpose(1, 0, 2) for heads in (6, 3, 3))
    outputs.append(attention(q, k, v))
    return outputs
