"""The taste of a lecture: one function `attention(q, k, v, mask=None)` with a boolean mask, True = may look."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal, pairs

SOURCE = '''import math

import torch


def causal_mask(query_len, key_len):
    """True where a query may look; the last query belongs to the last key."""
    return torch.ones(query_len, key_len, dtype=torch.bool).tril(key_len - query_len)


def attention(q, k, v, mask=None, dropout=0.0, training=False):
    """softmax(q k^T / sqrt(d)) v on (batch, heads, tokens, d).

    mask: bool, True where a query may look at a key, broadcast to (batch, heads, query, key).
    A query that may look at nothing gives zeros.
    """
    d = q.size(-1)
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    weights = torch.nan_to_num(weights, nan=0.0)
    weights = torch.dropout(weights, dropout, training)
    return torch.matmul(weights, v)
'''

NAME: str | None = "attention"
OPTIONS: list[str] = ["--layout", "BHTD", "--mask-argument", "keep", "--causal"]
SPEC: dict[str, Any] = {"num_heads": 6, "causal": True, "out_proj": False, "empty_row": "zero"}

FILL = 'scores = scores.masked_fill(~mask, float("-inf"))'
WEIGHTS = "weights = torch.softmax(scores, dim=-1)"
SAFE = "weights = torch.nan_to_num(weights, nan=0.0)"
FLAT = """def flat(t):
    stride, strides = 1, []
    for size in reversed(t.shape):
        strides.insert(0, stride)
        stride *= size
    return t.as_strided(t.shape, strides)


def attention("""

FAULTS: dict[str, Edits] = {
    "attends-over-batch": [
        (
            "scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d)",
            'scores = torch.einsum("bhid,chid->hibc", q, k) / math.sqrt(d)',
        ),
        (FILL, "pass"),
        ("torch.matmul(weights, v)", 'torch.einsum("hibc,chid->bhid", weights, v)'),
    ],
    "strided-read-as-contiguous": [
        ("def attention(", FLAT),
        ("d = q.size(-1)", "d = q.size(-1)\n    q, k, v = flat(q), flat(k), flat(v)"),
    ],
    "scores-transposed": [("torch.matmul(q, k.transpose(-2, -1))", "torch.matmul(k, q.transpose(-2, -1))")],
    "scale-missing": [(" / math.sqrt(d)", "")],
    "scale-by-model-width": [("math.sqrt(d)", "math.sqrt(d * q.size(1))")],
    "scale-inverted": [("/ math.sqrt(d)", "* math.sqrt(d)")],
    "scale-twice": [("/ math.sqrt(d)", "/ d")],
    "scale-after-softmax": [
        (" / math.sqrt(d)", ""),
        (WEIGHTS, "weights = torch.softmax(scores, dim=-1) / math.sqrt(d)"),
    ],
    "scale-other-constant": [("math.sqrt(d)", "math.sqrt(v.size(-1))")],
    "causal-missing": [("    if mask is not None:\n        " + FILL + "\n", "")],
    "causal-inverted": [("~mask", "mask")],
    "mask-added-as-number": [(FILL, "scores = scores + mask")],
    "masked-scores-zeroed": [(FILL, "scores = scores.masked_fill(~mask, 1e-9)")],
    "mask-after-softmax": [(FILL, "pass"), (SAFE, "if mask is not None:\n        weights = weights * mask")],
    "mask-fill-too-small": [('float("-inf")', "-9.0")],
    "empty-row": [("    " + SAFE + "\n", "")],
    "softmax-over-queries": [("dim=-1)", "dim=-2)")],
    "softmax-over-heads-or-batch": [("dim=-1)", "dim=1)")],
    "softmax-low-precision": [
        (WEIGHTS, "weights = torch.softmax(scores.to(torch.bfloat16), dim=-1).to(scores.dtype)"),
    ],
    "weights-times-key": [("torch.matmul(weights, v)", "torch.matmul(weights, k)")],
    "dropout-in-eval": [("dropout=0.0, training=False", "dropout=0.1, training=True")],
}
MORE_FAULTS: dict[str, Edits] = {
    "empty-row: uniform": [('float("-inf")', "torch.finfo(scores.dtype).min")],
    "scale-other-constant: key length": [("math.sqrt(d)", "math.sqrt(k.size(-2))")],
    "masked-scores-zeroed: multiplied": [(FILL, "scores = scores * mask")],
    "strided-read-as-contiguous: value": [
        ("def attention(", FLAT),
        ("d = q.size(-1)", "d = q.size(-1)\n    v = flat(v)"),
    ],
    "scale-after-softmax: on the output": [
        (" / math.sqrt(d)", ""),
        ("torch.matmul(weights, v)", "torch.matmul(weights, v) / math.sqrt(d)"),
    ],
    "mask-fill-too-small: -100": [('float("-inf")', "-100.0")],
    "causal-missing: out of place": [(FILL, 'scores.masked_fill(~mask, float("-inf"))')],
}
PAIRS = pairs(
    FAULTS,
    ("scale-missing", "mask-added-as-number"),
    ("scale-other-constant", "causal-missing"),
    ("scores-transposed", "scale-inverted"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "scale on the query": [
        ("torch.matmul(q, k", "torch.matmul(q / math.sqrt(d), k"),
        ("k.transpose(-2, -1)) / math.sqrt(d)", "k.transpose(-2, -1))"),
    ],
    "fourth root on both": [
        (
            "torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d)",
            "torch.matmul(q * d**-0.25, k.transpose(-2, -1) * d**-0.25)",
        ),
    ],
    "einsum": [("torch.matmul(weights, v)", 'torch.einsum("...ij,...jd->...id", weights, v)')],
    "finite fill, empty rows set to zero": [
        (FILL, "scores = scores.masked_fill(~mask, -1e4)"),
        (SAFE, "if mask is not None:\n        weights = weights * mask"),
    ],
    "mask after softmax, renormalised": [
        (FILL, "pass"),
        (
            SAFE,
            "if mask is not None:\n        weights = weights * mask\n"
            "        weights = weights / weights.sum(dim=-1, keepdim=True).clamp_min(1e-300)",
        ),
    ],
    "keys first": [
        (
            "scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d)",
            "scores = torch.matmul(k, q.transpose(-2, -1)) / math.sqrt(d)",
        ),
        ("~mask", "~mask.transpose(-2, -1)"),
        ("dim=-1)", "dim=-2)"),
        ("torch.matmul(weights, v)", "torch.matmul(weights.transpose(-2, -1), v)"),
    ],
    "float32 softmax": [(WEIGHTS, "weights = torch.softmax(scores.float(), dim=-1).to(scores.dtype)")],
    "exponentials by hand": [
        (
            WEIGHTS,
            "weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))\n"
            "    weights = weights / weights.sum(dim=-1, keepdim=True)",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on ordinary and large scores, and on non-contiguous inputs with left padding (so with empty rows)."""
    attention, causal_mask = namespace["attention"], namespace["causal_mask"]
    outputs = []
    for query_len, key_len, size in ((9, 9, 1.0), (9, 9, 8.0)):
        q, k = normal(2, 6, query_len, 8, seed=1, size=size), normal(2, 6, key_len, 8, seed=2, size=size)
        outputs.append(attention(q, k, normal(2, 6, key_len, 8, seed=3), causal_mask(query_len, key_len)))
    padding = torch_padding()
    for tokens in (11, 7):
        q, k, v = (normal(2, tokens, 6, d, seed=seed).transpose(1, 2) for seed, d in ((4, 8), (5, 8), (6, 10)))
        mask = causal_mask(tokens, tokens) & padding[:, :, :, :tokens]
        outputs.append(attention(q, k, v, mask))
    return outputs


def torch_padding() -> Any:
    """A keep mask that hides the first three tokens of the second sequence."""
    keep = normal(2, 1, 1, 11).bool() | True
    keep[1, :, :, :3] = False
    return keep
