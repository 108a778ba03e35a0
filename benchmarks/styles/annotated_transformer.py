"""The taste of the annotated paper: `MultiHeadedAttention(h, d_model)`, four cloned linears, any query, key, value."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import copy
import math

import torch
import torch.nn as nn


def clones(module, N):
    """N layers of the same kind, each with parameters of its own."""
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def attention(query, key, value, mask=None, dropout=None):
    """Scaled dot product attention."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h  # d_v is the same
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        """mask: (batch, 1, key tokens) or (batch, query tokens, key tokens), 0 where a query must not look"""
        if mask is not None:
            mask = mask.unsqueeze(1)  # the same for all heads
        nbatches = query.size(0)

        # 1) project, d_model -> h x d_k
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]

        # 2) attend in every head
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)

        # 3) heads side by side, then the last linear
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x).relu()))
'''

NAME: str | None = "MultiHeadedAttention"
OPTIONS: list[str] = ["--init", '{"h": 6, "d_model": 48}', "--mask-argument", "keep"]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "dropout_p": 0.1, "projection_bias": True}

FILL = "scores = scores.masked_fill(mask == 0, -1e9)"
SOFTMAX = "p_attn = scores.softmax(dim=-1)"
PROJECT = (
    "        query, key, value = [\n            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)\n"
    "            for lin, x in zip(self.linears, (query, key, value))\n        ]\n"
)
LIN = "lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)"
CALL = "x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)"
LAST = "return self.linears[-1](x)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [(PROJECT, PROJECT + "        value = key\n")],
    "key-value-swapped": [("        query, key, value = [\n", "        query, value, key = [\n")],
    "projection-transposed": [("lin(x).view", "(x @ lin.weight + lin.bias).view")],
    "heads-split-by-view": [(LIN, "lin(x).view(nbatches, self.h, -1, self.d_k)")],
    "strided-read-as-contiguous": [
        (PROJECT, PROJECT + "        value = value.transpose(1, 2).reshape(nbatches, self.h, -1, self.d_k)\n"),
    ],
    "heads-merged-by-view": [("x.transpose(1, 2).contiguous().view", "x.contiguous().view")],
    "attends-over-batch": [
        (
            "        nbatches = query.size(0)\n",
            "        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)\n"
            "        mask = None\n        nbatches = query.size(0)\n",
        ),
        (LAST, "return self.linears[-1](x).transpose(0, 1)"),
    ],
    "scores-transposed": [("torch.matmul(query, key.transpose(-2, -1))", "torch.matmul(key, query.transpose(-2, -1))")],
    "scale-missing": [(" / math.sqrt(d_k)", "")],
    "scale-by-model-width": [("math.sqrt(d_k)", "math.sqrt(d_k * query.size(1))")],
    "scale-inverted": [("/ math.sqrt(d_k)", "* math.sqrt(d_k)")],
    "scale-twice": [("/ math.sqrt(d_k)", "/ d_k")],
    "scale-after-softmax": [(" / math.sqrt(d_k)", ""), (SOFTMAX, SOFTMAX + " / math.sqrt(d_k)")],
    "scale-other-constant": [("d_k = query.size(-1)", "d_k = query.size(-2)")],
    "mask-added-as-number": [(FILL, "scores = scores + mask")],
    "masked-scores-zeroed": [("-1e9", "1e-9")],
    "mask-after-softmax": [
        (FILL, "pass"),
        (SOFTMAX, SOFTMAX + "\n    if mask is not None:\n        p_attn = p_attn * mask"),
    ],
    "mask-fill-too-small": [("-1e9", "-4")],
    "padding-missing": [(", mask=mask, dropout", ", mask=None, dropout")],
    "padding-wrong-side": [("mask == 0", "mask == 1")],
    "padding-on-queries": [("mask = mask.unsqueeze(1)  #", "mask = mask.transpose(-2, -1).unsqueeze(1)  #")],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2)")],
    "softmax-over-heads-or-batch": [("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "p_attn = scores.bfloat16().softmax(dim=-1).to(value.dtype)")],
    "weights-times-key": [("torch.matmul(p_attn, value), p_attn", "torch.matmul(p_attn, key), p_attn")],
    "dropout-in-eval": [("p_attn = dropout(p_attn)", "p_attn = nn.functional.dropout(p_attn, dropout.p)")],
    "output-projection-missing": [(LAST, "return x")],
    "bias-term": [(LAST, "return x @ self.linears[-1].weight.T")],
}
MORE_FAULTS: dict[str, Edits] = {
    "value-is-key: twice the second linear": [("zip(self.linears, (", "zip([self.linears[i] for i in (0, 1, 1)], (")],
    "padding-wrong-side: reversed tokens": [("mask = mask.unsqueeze(1)  #", "mask = mask.flip(-1).unsqueeze(1)  #")],
    "mask-fill-too-small: -100": [("-1e9", "-100")],
    "bias-term: query": [("lin(x).view", "(lin(x) - self.linears[0].bias * (lin is self.linears[0])).view")],
    "scale-other-constant: heads": [("math.sqrt(d_k)", "math.sqrt(query.size(1))")],
    "heads-merged-by-view: flat": [
        ("x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)", "x.reshape(nbatches, x.size(2), -1)")
    ],
}
PAIRS = pairs(
    FAULTS,
    ("padding-missing", "scale-by-model-width"),
    ("heads-merged-by-view", "key-value-swapped"),
    ("masked-scores-zeroed", "scale-missing"),
    ("softmax-over-queries", "bias-term"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("-1e9", "-1e4")],
    "scale on the query": [
        (
            "torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)",
            "torch.matmul(query / math.sqrt(d_k), key.transpose(-2, -1))",
        ),
    ],
    "sdpa": [
        (
            CALL,
            "mask = None if mask is None else mask != 0\n"
            "        x = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
        ),
    ],
    "flatten": [
        ("x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)", "x.transpose(1, 2).flatten(2)")
    ],
    "float32 softmax": [(SOFTMAX, "p_attn = scores.float().softmax(dim=-1).to(value.dtype)")],
    "mask after softmax, renormalised": [
        (FILL, "pass"),
        (
            SOFTMAX,
            SOFTMAX + "\n    if mask is not None:\n        p_attn = p_attn * mask\n"
            "        p_attn = p_attn / p_attn.sum(-1, keepdim=True)",
        ),
    ],
    "keys first": [
        ("torch.matmul(query, key.transpose(-2, -1))", "torch.matmul(key, query.transpose(-2, -1))"),
        ("mask == 0", "mask.transpose(-2, -1) == 0"),
        ("softmax(dim=-1)", "softmax(dim=-2)"),
        ("return torch.matmul(p_attn, value)", "return torch.matmul(p_attn.transpose(-2, -1), value)"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs without a mask, with right and left padding, and with a single visible token on large scores."""
    module = randomised(namespace["MultiHeadedAttention"](6, 48))
    x = normal(3, 9, 48, seed=1)
    outputs = []
    with torch.no_grad():
        outputs.append(module(x, x, x))
        for padded, size in ((slice(6, None), 1.0), (slice(None, 4), 1.0), (slice(1, None), 4.0)):
            keep = torch.ones(3, 9, dtype=torch.long)
            keep[0, padded] = 0
            scaled = x * size
            outputs.append(module(scaled, scaled, scaled, keep[:, None, :]))
    return outputs
