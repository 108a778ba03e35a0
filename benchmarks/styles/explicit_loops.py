"""The taste of somebody who trusts only loops: one batch row, one head, one query at a time, and a window."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import math

import torch
import torch.nn as nn


class LoopAttention(nn.Module):
    """Sliding-window causal attention, slow and readable. A token sees itself and window - 1 tokens before it."""

    def __init__(self, embed_dim, num_heads, window=4):
        super().__init__()
        assert embed_dim % num_heads == 0
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.window = window
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        B, T, C = x.shape
        queries = self.query(x).reshape(B, T, self.num_heads, self.head_dim)
        keys = self.key(x).reshape(B, T, self.num_heads, self.head_dim)
        values = self.value(x).reshape(B, T, self.num_heads, self.head_dim)

        context = torch.zeros(B, T, self.num_heads, self.head_dim, dtype=x.dtype, device=x.device)
        for b in range(B):
            for h in range(self.num_heads):
                for t in range(T):
                    first = max(0, t - self.window + 1)
                    last = t + 1
                    scores = keys[b, first:last, h] @ queries[b, t, h]
                    scores = scores / math.sqrt(self.head_dim)
                    weights = torch.exp(scores - scores.max())
                    weights = weights / weights.sum()
                    context[b, t, h] = weights @ values[b, first:last, h]

        return self.proj(context.reshape(B, T, C))
'''

NAME: str | None = None
OPTIONS: list[str] = ["--heads", "6", "--causal", "--window", "4"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "window": 4,
    "projection_bias": True,
}

SPLIT = ".reshape(B, T, self.num_heads, self.head_dim)"
VIEW = ".reshape(B, self.num_heads, T, self.head_dim).transpose(1, 2)"
SCALE = "scores = scores / math.sqrt(self.head_dim)"
NORMALISE = "weights = weights / weights.sum()"
MIX = "weights @ values[b, first:last, h]"
MASK_BY_FILL = [
    ("keys[b, first:last, h] @ queries", "keys[b, :, h] @ queries"),
    (MIX, "weights @ values[b, :, h]"),
]
SEEN = "seen = (torch.arange(T) >= first) & (torch.arange(T) < last)\n                    "

FAULTS: dict[str, Edits] = {
    "value-is-key": [("values = self.value(x)", "values = self.key(x)")],
    "key-value-swapped": [
        ("keys = self.key(x)", "keys = self.value(x)"),
        ("values = self.value(x)", "values = self.key(x)"),
    ],
    "projection-transposed": [("self.value(x)", "(x @ self.value.weight + self.value.bias)")],
    "heads-split-by-view": [(f"{name}(x){SPLIT}", f"{name}(x){VIEW}") for name in ("query", "key", "value")],
    "heads-merged-by-view": [("context.reshape(B, T, C)", "context.transpose(1, 2).reshape(B, T, C)")],
    "scores-transposed": [
        ("keys[b, first:last, h] @ queries[b, t, h]", "queries[b, first:last, h] @ keys[b, t, h]"),
    ],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [(SCALE, "scores = scores / math.sqrt(C)")],
    "scale-inverted": [(SCALE, "scores = scores * math.sqrt(self.head_dim)")],
    "scale-twice": [(SCALE, "scores = scores / self.head_dim")],
    "scale-after-softmax": [(SCALE, ""), (NORMALISE, "weights = weights / weights.sum() / math.sqrt(self.head_dim)")],
    "scale-other-constant": [(SCALE, "scores = scores / math.sqrt(self.num_heads)")],
    "causal-missing": [("last = t + 1", "last = T")],
    "causal-strict": [
        ("last = t + 1", "last = t"),
        (
            "                    scores = keys",
            "                    if t == 0:\n                        continue\n                    scores = keys",
        ),
    ],
    "causal-one-ahead": [("last = t + 1", "last = min(T, t + 2)")],
    "masked-scores-zeroed": [
        *MASK_BY_FILL,
        (SCALE, SCALE + "\n                    " + SEEN + "scores = scores * seen"),
    ],
    "mask-after-softmax": [
        *MASK_BY_FILL,
        (NORMALISE, NORMALISE + "\n                    " + SEEN + "weights = weights * seen"),
    ],
    "mask-fill-too-small": [
        *MASK_BY_FILL,
        (SCALE, SCALE + "\n                    " + SEEN + "scores[~seen] = -10.0"),
    ],
    "mask-added-as-number": [
        *MASK_BY_FILL,
        (SCALE, SCALE + "\n                    " + SEEN + "scores = scores + seen.to(scores.dtype)"),
    ],
    "window-off-by-one": [("t - self.window + 1", "t - self.window")],
    "window-missing": [("first = max(0, t - self.window + 1)", "first = 0")],
    "softmax-low-precision": [
        (
            "weights = torch.exp(scores - scores.max())",
            "scores = scores.to(torch.float16)\n                    weights = torch.exp(scores - scores.max())",
        ),
        (MIX, "weights.to(x.dtype) @ values[b, first:last, h]"),
    ],
    "weights-times-key": [(MIX, "weights @ keys[b, first:last, h]")],
    "output-projection-missing": [("self.proj(context.reshape(B, T, C))", "context.reshape(B, T, C)")],
    "bias-term": [("self.value(x)", "(x @ self.value.weight.T)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "window-off-by-one: one too few": [("t - self.window + 1)", "t - self.window + 2)")],
    "scale-inverted: by the dimension": [(SCALE, "scores = scores * self.head_dim ** 0.5")],
    "scale-other-constant: from the length": [(SCALE, "scores = scores / math.sqrt(T)")],
    "mask-fill-too-small: -100": [
        *MASK_BY_FILL,
        (SCALE, SCALE + "\n                    " + SEEN + "scores[~seen] = -100.0"),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("window-off-by-one", "scale-missing"),
    ("causal-one-ahead", "weights-times-key"),
    ("window-missing", "heads-merged-by-view"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "torch.softmax": [
        ("weights = torch.exp(scores - scores.max())", "weights = torch.softmax(scores, dim=0)"),
        (NORMALISE, ""),
    ],
    "no maximum taken off, but a mean": [("scores - scores.max()", "scores - scores.mean()")],
    "scaled query": [("@ queries[b, t, h]", "@ (queries[b, t, h] * self.head_dim ** -0.5)"), (SCALE, "")],
    "fourth root on both": [
        (
            "keys[b, first:last, h] @ queries[b, t, h]",
            "(keys[b, first:last, h] * self.head_dim ** -0.25) @ (queries[b, t, h] * self.head_dim ** -0.25)",
        ),
        (SCALE, ""),
    ],
    "mask by a fill of -1e4": [
        *MASK_BY_FILL,
        (SCALE, SCALE + "\n                    " + SEEN + "scores[~seen] = -1e4"),
    ],
    "mask after softmax, renormalised": [
        *MASK_BY_FILL,
        (NORMALISE, NORMALISE + "\n                    " + SEEN + "weights = weights * seen / (weights * seen).sum()"),
    ],
    "float32 softmax": [
        (
            "weights = torch.exp(scores - scores.max())",
            "scores = scores.float()\n                    weights = torch.exp(scores - scores.max())",
        ),
        (MIX, "weights.to(x.dtype) @ values[b, first:last, h]"),
    ],
    "weighted sum spelled out": [(MIX, "(weights[:, None] * values[b, first:last, h]).sum(dim=0)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches, both longer than the window."""
    return module_outputs(namespace["LoopAttention"](48, 6))
