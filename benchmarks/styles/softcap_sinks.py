"""The taste of an open-weight release: grouped heads, capped scores and one learned sink per head in the softmax."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import torch
from torch import nn


class CappedSinkAttention(nn.Module):
    """Causal grouped-query attention. Scores are capped; a learned number per head joins the softmax and is dropped."""

    def __init__(self, embed_dim=48, num_heads=6, num_kv_heads=2, attn_logit_softcapping=4.0, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.softcap = attn_logit_softcapping
        self.scaling = self.head_dim ** -0.5
        self.q_proj = nn.Linear(embed_dim, num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * self.head_dim, embed_dim, bias=bias)
        self.sinks = nn.Parameter(torch.zeros(num_heads))

    def forward(self, x):
        b, t, _ = x.shape
        group = self.num_heads // self.num_kv_heads
        q = self.q_proj(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        k = torch.repeat_interleave(k, group, dim=1)
        v = torch.repeat_interleave(v, group, dim=1)

        scores = q @ k.transpose(2, 3)
        scores = scores * self.scaling
        scores = torch.tanh(scores / self.softcap) * self.softcap
        future = torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), 1)
        scores = scores.masked_fill(future, float("-inf"))

        sinks = self.sinks.view(1, -1, 1, 1).expand(b, -1, t, 1)
        combined = torch.cat([scores, sinks], dim=-1)
        weights = torch.softmax(combined, dim=-1)
        weights = weights[..., :-1]

        out = weights @ v
        out = out.transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(out)
'''

NAME: str | None = None
OPTIONS: list[str] = ["--causal", "--softcap", "4", "--sinks"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "softcap": 4.0,
    "sinks": True,
    "projection_bias": True,
}

SCALE = "        scores = scores * self.scaling\n"
CAP = "        scores = torch.tanh(scores / self.softcap) * self.softcap\n"
FILL = '        scores = scores.masked_fill(future, float("-inf"))\n'
SOFTMAX = "weights = torch.softmax(combined, dim=-1)"
DROP = "weights = weights[..., :-1]"
K_REPEAT = "k = torch.repeat_interleave(k, group, dim=1)"
V_REPEAT = "v = torch.repeat_interleave(v, group, dim=1)"
MERGE = "out.transpose(1, 2).reshape(b, t, -1)"


def by_view(letter: str, heads: str) -> tuple[str, str]:
    """The split of one projection into heads made by a view alone."""
    return (
        f"self.{letter}_proj(x).view(b, t, {heads}, self.head_dim).transpose(1, 2)",
        f"self.{letter}_proj(x).view(b, {heads}, t, self.head_dim)",
    )


FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.v_proj(x)", "self.k_proj(x)")],
    "key-value-swapped": [("k = self.k_proj(x)", "k = self.v_proj(x)"), ("v = self.v_proj(x)", "v = self.k_proj(x)")],
    "projection-transposed": [("self.q_proj(x)", "(x @ self.q_proj.weight + self.q_proj.bias)")],
    "heads-split-by-view": [
        by_view("q", "self.num_heads"),
        by_view("k", "self.num_kv_heads"),
        by_view("v", "self.num_kv_heads"),
    ],
    "strided-read-as-contiguous": [by_view("v", "self.num_kv_heads")],
    "heads-merged-by-view": [(MERGE, "out.reshape(b, t, -1)")],
    "kv-heads-tiled": [(K_REPEAT, "k = k.tile(1, group, 1, 1)"), (V_REPEAT, "v = v.tile(1, group, 1, 1)")],
    "kv-head-divisor": [
        (K_REPEAT, "k = k[:, :1].repeat(1, self.num_heads, 1, 1)"),
        (V_REPEAT, "v = v[:, :1].repeat(1, self.num_heads, 1, 1)"),
    ],
    "scores-transposed": [("q @ k.transpose(2, 3)", "k @ q.transpose(2, 3)")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("self.head_dim ** -0.5", "embed_dim ** -0.5")],
    "scale-inverted": [("self.head_dim ** -0.5", "self.head_dim ** 0.5")],
    "scale-twice": [(SCALE, SCALE + SCALE)],
    "scale-after-softmax": [(SCALE, ""), (DROP, DROP + " * self.scaling")],
    "scale-other-constant": [("self.head_dim ** -0.5", "num_kv_heads ** -0.5")],
    "softcap-missing": [(CAP, "")],
    "softcap-before-scale": [(SCALE, ""), (CAP, CAP + SCALE)],
    "softcap-after-mask": [(CAP, ""), (FILL, FILL + CAP)],
    "causal-missing": [(FILL, "")],
    "causal-strict": [("device=x.device), 1)", "device=x.device), 0)")],
    "causal-one-ahead": [("device=x.device), 1)", "device=x.device), 2)")],
    "causal-inverted": [("masked_fill(future,", "masked_fill(future.T,")],
    "mask-added-as-number": [(FILL, "        scores = scores + ~future\n")],
    "masked-scores-zeroed": [('float("-inf")', "0.0")],
    "mask-after-softmax": [(FILL, ""), (DROP, DROP + ".masked_fill(future, 0.0)")],
    "mask-fill-too-small": [('float("-inf")', "-5.0")],
    "sink-missing": [("combined = torch.cat([scores, sinks], dim=-1)", "combined = scores"), (DROP, "")],
    "softmax-over-queries": [
        (
            "combined = torch.cat([scores, sinks], dim=-1)",
            "sinks = self.sinks.view(1, -1, 1, 1).expand(b, -1, 1, t)\n"
            "        combined = torch.cat([scores, sinks], dim=2)",
        ),
        (SOFTMAX, "weights = torch.softmax(combined, dim=2)"),
        (DROP, "weights = weights[:, :, :-1]"),
    ],
    "softmax-low-precision": [(SOFTMAX, "weights = torch.softmax(combined.bfloat16(), dim=-1).to(x.dtype)")],
    "weights-times-key": [("out = weights @ v", "out = weights @ k")],
    "output-projection-missing": [("return self.o_proj(out)", "return out")],
    "bias-term": [("return self.o_proj(out)", "return nn.functional.linear(out, self.o_proj.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "sink-missing: renormalised away": [
        (DROP, DROP + "\n        weights = weights / weights.sum(dim=-1, keepdim=True)"),
    ],
    "softcap-missing: tanh forgotten": [(CAP, "        scores = (scores / self.softcap) * self.softcap\n")],
    "bias-term: value without its bias": [("self.v_proj(x)", "(self.v_proj(x) - self.v_proj.bias)")],
    "heads-split-by-view: query": [by_view("q", "self.num_heads")],
}
PAIRS = pairs(
    FAULTS,
    ("sink-missing", "scale-missing"),
    ("softcap-missing", "kv-heads-tiled"),
    ("causal-one-ahead", "softcap-before-scale"),
    ("sink-missing", "heads-merged-by-view"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "sink in the denominator": [
        ("combined = torch.cat([scores, sinks], dim=-1)", "top = torch.maximum(scores.amax(-1, keepdim=True), sinks)"),
        (SOFTMAX, "weights = torch.exp(scores - top)"),
        (DROP, "weights = weights / (weights.sum(-1, keepdim=True) + torch.exp(sinks - top))"),
    ],
    "sink first": [
        ("torch.cat([scores, sinks], dim=-1)", "torch.cat([sinks, scores], dim=-1)"),
        (DROP, "weights = weights[..., 1:]"),
    ],
    "fill -1e4": [('float("-inf")', "-1e4")],
    "scale on the query": [(SCALE, ""), ("q @ k.transpose(2, 3)", "(q * self.scaling) @ k.transpose(2, 3)")],
    "float32 softmax": [(SOFTMAX, "weights = torch.softmax(combined, dim=-1, dtype=torch.float32).to(x.dtype)")],
    "maximum taken off": [(SOFTMAX, "combined = combined - combined.amax(-1, keepdim=True)\n        " + SOFTMAX)],
    "expand and flatten": [(K_REPEAT, "k = k[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CappedSinkAttention"]())
