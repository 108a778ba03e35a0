"""The taste of somebody porting to another language: NumPy, `(tokens, heads, d)`, plain loops, adjacent rope."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal_array, pairs

SOURCE = '''import numpy as np


def rotate(vector, position, theta=10000.0):
    """Rotary embedding of one head's vector: channels 2c and 2c + 1 turn by position * theta ** (-2c / d)."""
    d = len(vector)
    turned = np.empty_like(vector)
    for c in range(0, d, 2):
        angle = position * theta ** (-c / d)
        cos, sin = np.cos(angle), np.sin(angle)
        turned[c] = vector[c] * cos - vector[c + 1] * sin
        turned[c + 1] = vector[c] * sin + vector[c + 1] * cos
    return turned


def attend(q, k, v, window=None):
    """Causal attention of the last len(q) tokens over len(k) tokens.

    q (query_len, heads, d); k, v (key_len, kv_heads, d); a token sees the last `window` keys up to its own.
    """
    query_len, heads, d = q.shape
    key_len, kv_heads, _ = k.shape
    past = key_len - query_len
    scale = 1.0 / np.sqrt(d)
    result = np.zeros((query_len, heads, v.shape[2]), dtype=q.dtype)

    for h in range(heads):
        g = h * kv_heads // heads
        keys = np.stack([rotate(k[j, g], j) for j in range(key_len)])
        for i in range(query_len):
            position = past + i
            start = 0 if window is None else max(0, position - window + 1)
            stop = position + 1
            query = rotate(q[i, h], position)
            s = keys[start:stop] @ query * scale
            w = np.exp(s - s.max())
            w /= w.sum()
            result[i, h] = w @ v[start:stop, g]
    return result
'''

NAME: str | None = "attend"
OPTIONS: list[str] = [
    "--layout", "THD", "--heads", "6", "--kv-heads", "3", "--causal", "--window", "4", "--rope", "adjacent",
]  # fmt: skip
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 3,
    "causal": True,
    "window": 4,
    "rope": {"pairing": "adjacent", "base": 10000.0},
    "out_proj": False,
}

ANGLE = "angle = position * theta ** (-c / d)"
NORMALISE = "w /= w.sum()"
MIX = "w @ v[start:stop, g]"
S = "s = keys[start:stop] @ query * scale"

FAULTS: dict[str, Edits] = {
    "kv-heads-tiled": [("g = h * kv_heads // heads", "g = h % kv_heads")],
    "kv-head-divisor": [("g = h * kv_heads // heads", "g = h // kv_heads")],
    "strided-read-as-contiguous": [
        (
            "    query_len, heads, d = q.shape",
            '    q, k, v = (np.reshape(a.ravel("K"), a.shape) for a in (q, k, v))\n    query_len, heads, d = q.shape',
        ),
    ],
    "rope-layout": [
        ("for c in range(0, d, 2):", "for c in range(d // 2):"),
        (ANGLE, "angle = position * theta ** (-2 * c / d)"),
        ("turned[c] = vector[c] * cos - vector[c + 1] * sin", "turned[c] = vector[c] * cos - vector[c + d // 2] * sin"),
        (
            "turned[c + 1] = vector[c] * sin + vector[c + 1] * cos",
            "turned[c + d // 2] = vector[c] * sin + vector[c + d // 2] * cos",
        ),
    ],
    "rope-sign": [(ANGLE, "angle = -position * theta ** (-c / d)")],
    "rope-offset-lost": [("query = rotate(q[i, h], position)", "query = rotate(q[i, h], i)")],
    "rope-frequencies": [(ANGLE, "angle = position * theta ** (-c / (2 * d))")],
    "weights-times-key": [(MIX, "w @ k[start:stop, g]")],
    "scale-missing": [(" * scale", "")],
    "scale-by-model-width": [("np.sqrt(d)", "np.sqrt(d * heads)")],
    "scale-inverted": [("1.0 / np.sqrt(d)", "np.sqrt(d)")],
    "scale-twice": [("1.0 / np.sqrt(d)", "1.0 / d")],
    "scale-after-softmax": [(" * scale", ""), (NORMALISE, "w *= scale / w.sum()")],
    "scale-other-constant": [("1.0 / np.sqrt(d)", "1.0 / np.sqrt(kv_heads)")],
    "causal-missing": [("stop = position + 1", "stop = key_len")],
    "causal-one-ahead": [("stop = position + 1", "stop = position + 2")],
    "window-off-by-one": [("position - window + 1", "position - window")],
    "window-missing": [("start = 0 if window is None else max(0, position - window + 1)", "start = 0")],
    "softmax-low-precision": [("w = np.exp(s - s.max())", "w = np.exp((s - s.max()).astype(np.float16))")],
}
MORE_FAULTS: dict[str, Edits] = {
    "window-off-by-one: one too few": [("position - window + 1", "position - window + 2")],
    "rope-missing: keys and queries as they are": [
        ("rotate(k[j, g], j)", "k[j, g]"),
        ("rotate(q[i, h], position)", "q[i, h]"),
    ],
    "rope-frequencies: base 1000": [("theta=10000.0", "theta=1000.0")],
    "rope-sign: sines": [
        ("vector[c] * cos - vector[c + 1] * sin", "vector[c] * cos + vector[c + 1] * sin"),
        ("vector[c] * sin + vector[c + 1] * cos", "vector[c + 1] * cos - vector[c] * sin"),
    ],
    "rope-offset-shifted: keys start at one": [("rotate(k[j, g], j)", "rotate(k[j, g], j + 1)")],
}
PAIRS = pairs(
    FAULTS,
    ("kv-heads-tiled", "rope-offset-lost"),
    ("window-off-by-one", "rope-layout"),
    ("scale-missing", "rope-sign"),
    ("causal-one-ahead", "scale-twice"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "positions from 50 on": [
        ("rotate(k[j, g], j)", "rotate(k[j, g], 50 + j)"),
        ("rotate(q[i, h], position)", "rotate(q[i, h], 50 + position)"),
    ],
    "only the difference of positions": [
        ("rotate(k[j, g], j)", "k[j, g]"),
        (S, "s = np.array([rotate(q[i, h], position - j) @ keys[j] for j in range(start, stop)]) * scale"),
        ("query = rotate(q[i, h], position)", "pass"),
    ],
    "integer group": [("g = h * kv_heads // heads", "g = h // (heads // kv_heads)")],
    "masked, all keys": [
        (S, "s = keys @ query * scale\n            s[:start] = s[stop:] = -np.inf"),
        (MIX, "w @ v[:, g]"),
    ],
    "scale on the query": [
        ("query = rotate(q[i, h], position)", "query = rotate(q[i, h], position) * scale"),
        ("@ query * scale", "@ query"),
    ],
    "float32 softmax": [("w = np.exp(s - s.max())", "w = np.exp((s - s.max()).astype(np.float32))")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs of a prefill, a chunk and one token; one with arrays that are not contiguous."""
    attend = namespace["attend"]
    outputs = []
    for new, total in ((9, 9), (4, 11), (1, 7)):
        q, k = normal_array(new, 6, 8, seed=new), normal_array(total, 3, 8, seed=total)
        outputs.append(attend(q, k, normal_array(total, 3, 8, seed=total + 1), window=4))
    q, k, v = (normal_array(heads, 7, 8, seed=heads).transpose(1, 0, 2) for heads in (6, 3, 3))
    outputs.append(attend(q, k, v, window=4))
    return outputs
