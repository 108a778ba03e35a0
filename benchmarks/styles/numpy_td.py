"""The taste of a notebook without a framework: NumPy, one head, `(tokens, d)` arrays and a softmax of one's own."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal_array, pairs

SOURCE = '''import numpy as np


def softmax(z, axis=-1):
    z = z - np.max(z, axis=axis, keepdims=True)
    e = np.exp(z)
    return e / np.sum(e, axis=axis, keepdims=True)


def causal_self_attention(Q, K, V):
    """Q, K: (T, d), V: (T, d_v). Token t may look at the tokens 0 .. t."""
    T, d = Q.shape
    S = Q @ K.T / np.sqrt(d)
    future = np.triu(np.ones((T, T), dtype=bool), k=1)
    S = np.where(future, -np.inf, S)
    A = softmax(S, axis=-1)
    return A @ V


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    Q, K, V = (rng.normal(size=(4, 3)) for _ in range(3))
    print(causal_self_attention(Q, K, V).round(3))
'''

NAME: str | None = "causal_self_attention"
OPTIONS: list[str] = ["--layout", "TD"]
SPEC: dict[str, Any] = {"causal": True, "out_proj": False}

SCORES = "S = Q @ K.T / np.sqrt(d)"
WHERE = "S = np.where(future, -np.inf, S)"
WEIGHTS = "A = softmax(S, axis=-1)"

FAULTS: dict[str, Edits] = {
    "weights-times-key": [("return A @ V", "return A @ K")],
    "scores-transposed": [("Q @ K.T", "K @ Q.T")],
    "strided-read-as-contiguous": [
        ("T, d = Q.shape", 'Q, K, V = (M.ravel(order="K").reshape(M.shape) for M in (Q, K, V))\n    T, d = Q.shape'),
    ],
    "scale-missing": [(" / np.sqrt(d)", "")],
    "scale-inverted": [("/ np.sqrt(d)", "* np.sqrt(d)")],
    "scale-twice": [("/ np.sqrt(d)", "/ d")],
    "scale-after-softmax": [(" / np.sqrt(d)", ""), (WEIGHTS, WEIGHTS + " / np.sqrt(d)")],
    "scale-other-constant": [("np.sqrt(d)", "np.sqrt(T)")],
    "causal-missing": [("    " + WHERE + "\n", "")],
    "causal-strict": [("k=1", "k=0")],
    "causal-one-ahead": [("k=1", "k=2")],
    "causal-inverted": [("np.triu(np.ones((T, T), dtype=bool), k=1)", "np.tril(np.ones((T, T), dtype=bool), k=-1)")],
    "mask-added-as-number": [(WHERE, "S = S + ~future")],
    "masked-scores-zeroed": [(WHERE, "S = S * (1 - future)")],
    "mask-after-softmax": [(WHERE + "\n", "\n"), (WEIGHTS, "A = softmax(S, axis=-1) * ~future")],
    "mask-fill-too-small": [("-np.inf", "-5.0")],
    "softmax-over-queries": [("softmax(S, axis=-1)", "softmax(S, axis=0)")],
    "softmax-low-precision": [(WEIGHTS, "A = softmax(S.astype(np.float16), axis=-1).astype(V.dtype)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "causal-one-ahead: comparison": [
        ("np.triu(np.ones((T, T), dtype=bool), k=1)", "~(np.arange(T)[None, :] <= np.arange(T)[:, None] + 1)"),
    ],
    "masked-scores-zeroed: filled": [("-np.inf", "0.0")],
    "causal-missing: bitwise no-op": [("np.where(future, -np.inf, S)", "np.where(future & ~future, -np.inf, S)")],
    "scale-twice: both by sqrt": [("Q @ K.T / np.sqrt(d)", "(Q / np.sqrt(d)) @ (K.T / np.sqrt(d))")],
    "softmax-over-queries: own softmax": [("def softmax(z, axis=-1):", "def softmax(z, axis=-1):\n    axis = 0")],
    "mask-fill-too-small: -100": [("-np.inf", "-100.0")],
}
PAIRS = pairs(
    FAULTS,
    ("scale-missing", "causal-one-ahead"),
    ("scores-transposed", "causal-missing"),
    ("softmax-over-queries", "scale-twice"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e9": [("-np.inf", "-1e9")],
    "scale on the query": [(SCORES, "S = (Q / np.sqrt(d)) @ K.T")],
    "fourth root": [(SCORES, "S = (Q / d**0.25) @ (K / d**0.25).T")],
    "keys in the rows": [
        ("Q @ K.T", "K @ Q.T"),
        ("np.where(future, ", "np.where(future.T, "),
        ("softmax(S, axis=-1)", "softmax(S, axis=0)"),
        ("return A @ V", "return A.T @ V"),
    ],
    "einsum": [("return A @ V", 'return np.einsum("ij,jd->id", A, V)')],
    "float32 softmax": [(WEIGHTS, "A = softmax(S.astype(np.float32), axis=-1)")],
    "no maximum taken off": [("    z = z - np.max(z, axis=axis, keepdims=True)\n", "")],
    "mask after softmax, renormalised": [
        (WHERE, ""),
        (WEIGHTS, "A = softmax(S, axis=-1) * ~future\n    A = A / A.sum(axis=-1, keepdims=True)"),
    ],
    "one token at a time": [
        (WEIGHTS, ""),
        ("return A @ V", "return np.stack([softmax(S[t, : t + 1]) @ V[: t + 1] for t in range(T)])"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on ordinary, large and very negative scores, and on arrays that are not contiguous."""
    attention = namespace["causal_self_attention"]
    outputs = []
    for size in (1.0, 6.0):
        q, k = normal_array(9, 8, seed=1, size=size), normal_array(9, 8, seed=2, size=size)
        outputs.append(attention(q, k, normal_array(9, 8, seed=3)))
    q, k = abs(normal_array(9, 8, seed=1, size=9.0)), -abs(normal_array(9, 8, seed=2, size=9.0))
    outputs.append(attention(q, k, normal_array(9, 8, seed=3)))
    outputs.append(attention(*(normal_array(d, 9, seed=4 + d).T for d in (8, 8, 10))))
    return outputs
