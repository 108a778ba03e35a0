"""The taste of somebody who spells every axis out: plain projections and `einsum`, names like `to_q`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''"""Causal self-attention with the axes spelled out."""
import torch
from torch import einsum, nn


class FeedForward(nn.Module):
    def __init__(self, dim, mult=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))

    def forward(self, x):
        return self.net(x)


class CausalEinsumAttention(nn.Module):
    # b batch, i query token, j key token, h head, d channel of a head
    def __init__(self, dim=48, heads=6, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.dim_head = dim // heads
        self.scale = self.dim_head ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.attn_dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.to_q(x).reshape(b, n, self.heads, self.dim_head)
        k = self.to_k(x).reshape(b, n, self.heads, self.dim_head)
        v = self.to_v(x).reshape(b, n, self.heads, self.dim_head)

        sim = einsum("bihd,bjhd->bhij", q, k) * self.scale

        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        sim = sim.masked_fill(future, -torch.finfo(sim.dtype).max)

        attn = sim.softmax(dim=-1)
        attn = self.attn_dropout(attn)

        out = einsum("bhij,bjhd->bihd", attn, v)
        return self.to_out(out.reshape(b, n, -1))
'''

NAME: str | None = "CausalEinsumAttention"
OPTIONS: list[str] = []
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "causal": True, "dropout_p": 0.1}

SCORES = 'sim = einsum("bihd,bjhd->bhij", q, k) * self.scale'
MASK = "sim = sim.masked_fill(future, -torch.finfo(sim.dtype).max)"
SOFTMAX = "attn = sim.softmax(dim=-1)"
MIX = 'out = einsum("bhij,bjhd->bihd", attn, v)'
SPLIT = ".reshape(b, n, self.heads, self.dim_head)"
VIEW = ".reshape(b, self.heads, n, self.dim_head).transpose(1, 2)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("v = self.to_v(x)", "v = self.to_k(x)")],
    "key-value-swapped": [("k = self.to_k(x)", "k = self.to_v(x)"), ("v = self.to_v(x)", "v = self.to_k(x)")],
    "projection-transposed": [("self.to_q(x)", "(x @ self.to_q.weight)")],
    "heads-split-by-view": [(f"to_{letter}(x){SPLIT}", f"to_{letter}(x){VIEW}") for letter in "qkv"],
    "heads-merged-by-view": [(MIX, 'out = einsum("bhij,bjhd->bhid", attn, v)')],
    "strided-read-as-contiguous": [(f"to_v(x){SPLIT}", f"to_v(x){VIEW}")],
    "scores-transposed": [("bihd,bjhd->bhij", "bihd,bjhd->bhji")],
    "scale-missing": [(" * self.scale", "")],
    "scale-by-model-width": [("self.dim_head ** -0.5", "dim ** -0.5")],
    "scale-inverted": [("self.dim_head ** -0.5", "self.dim_head ** 0.5")],
    "scale-twice": [("self.dim_head ** -0.5", "1 / self.dim_head")],
    "scale-after-softmax": [(" * self.scale", ""), (SOFTMAX, SOFTMAX + " * self.scale")],
    "scale-other-constant": [("self.dim_head ** -0.5", "heads ** -0.5")],
    "causal-missing": [(MASK, "")],
    "causal-strict": [("triu(1)", "triu(0)")],
    "causal-one-ahead": [("triu(1)", "triu(2)")],
    "causal-inverted": [("triu(1)", "tril(-1)")],
    "mask-added-as-number": [(MASK, "sim = sim + (~future).to(sim.dtype)")],
    "masked-scores-zeroed": [(MASK, "sim = sim.masked_fill(future, 0.0)")],
    "mask-after-softmax": [(MASK, ""), (SOFTMAX, SOFTMAX + ".masked_fill(future, 0.0)")],
    "mask-fill-too-small": [(MASK, "sim = sim.masked_fill(future, -5.0)")],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2)")],
    "softmax-over-heads-or-batch": [("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "attn = sim.to(torch.bfloat16).softmax(dim=-1).to(sim.dtype)")],
    "weights-times-key": [(MIX, 'out = einsum("bhij,bjhd->bihd", attn, k)')],
    "dropout-in-eval": [("self.attn_dropout(attn)", "nn.functional.dropout(attn, self.attn_dropout.p)")],
    "output-projection-missing": [("self.to_out(out.reshape(b, n, -1))", "out.reshape(b, n, -1)")],
    "bias-term": [("self.to_out(out.reshape(b, n, -1))", "out.reshape(b, n, -1) @ self.to_out.weight.T")],
}
MORE_FAULTS: dict[str, Edits] = {
    "scale-other-constant: from the length": [(" * self.scale", " * n ** -0.5")],
    "masked-scores-zeroed: multiplied": [(MASK, "sim = sim * ~future")],
    "projection-transposed: output": [
        ("self.to_out(out.reshape(b, n, -1))", "out.reshape(b, n, -1) @ self.to_out.weight + self.to_out.bias")
    ],
    "scores-transposed: query and key exchanged": [
        ('einsum("bihd,bjhd->bhij", q, k)', 'einsum("bihd,bjhd->bhij", k, q)')
    ],
    "mask-fill-too-small: -100": [(MASK, "sim = sim.masked_fill(future, -100)")],
}
PAIRS = pairs(
    FAULTS,
    ("scale-missing", "causal-one-ahead"),
    ("causal-missing", "heads-merged-by-view"),
    ("value-is-key", "scale-by-model-width"),
    ("softmax-over-queries", "output-projection-missing"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("-torch.finfo(sim.dtype).max", "-1e4")],
    "fill -inf": [("-torch.finfo(sim.dtype).max", "float('-inf')")],
    "scale on the query": [("self.to_q(x)", "(self.to_q(x) * self.scale)"), (", q, k) * self.scale", ", q, k)")],
    "fourth root on both": [
        ("self.to_q(x)", "(self.to_q(x) * self.dim_head ** -0.25)"),
        ("self.to_k(x)", "(self.to_k(x) * self.dim_head ** -0.25)"),
        (" * self.scale", ""),
    ],
    "other letters": [("bihd,bjhd->bhij", "bqhc,bkhc->bhqk"), ("bhij,bjhd->bihd", "bhqk,bkhc->bqhc")],
    "keys before queries": [
        ("bihd,bjhd->bhij", "bihd,bjhd->bhji"),
        ("triu(1)", "triu(1).T"),
        ("softmax(dim=-1)", "softmax(dim=-2)"),
        ("bhij,bjhd->bihd", "bhji,bjhd->bihd"),
    ],
    "float32 softmax": [(SOFTMAX, "attn = sim.float().softmax(dim=-1).to(sim.dtype)")],
    "mask after softmax, renormalised": [
        (MASK, ""),
        (SOFTMAX, SOFTMAX + ".masked_fill(future, 0.0)\n        attn = attn / attn.sum(dim=-1, keepdim=True)"),
    ],
    "merge by permute": [
        ("bhij,bjhd->bihd", "bhij,bjhd->bhid"),
        ("out.reshape(b, n, -1)", "out.permute(0, 2, 1, 3).reshape(b, n, -1)"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CausalEinsumAttention"]())
