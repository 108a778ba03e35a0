"""The taste of a recent small language model: RMSNorm on each head's query and key before rope, grouped heads, sdpa."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.inv_freq = [base ** (-i / dim) for i in range(0, dim, 2)]

    def forward(self, x):
        """x: (batch, heads, tokens, dim); the first half of the channels is paired with the second"""
        t = torch.arange(x.size(-2), dtype=x.dtype, device=x.device)
        angle = t[:, None] * torch.tensor(self.inv_freq, dtype=x.dtype, device=x.device)
        cos, sin = angle.cos(), angle.sin()
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class NormedAttention(nn.Module):
    """Causal grouped-query attention with normed queries and keys."""

    def __init__(self, n_embd=48, n_head=6, n_kv_head=3):
        super().__init__()
        self.n_head = n_head
        self.n_kv_head = n_kv_head
        self.head_dim = n_embd // n_head
        self.q_proj = nn.Linear(n_embd, n_head * self.head_dim, bias=False)
        self.k_proj = nn.Linear(n_embd, n_kv_head * self.head_dim, bias=False)
        self.v_proj = nn.Linear(n_embd, n_kv_head * self.head_dim, bias=False)
        self.o_proj = nn.Linear(n_head * self.head_dim, n_embd, bias=False)
        self.q_norm = RMSNorm(self.head_dim)
        self.k_norm = RMSNorm(self.head_dim)
        self.rotary = Rotary(self.head_dim)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.n_head, self.head_dim)
        k = self.k_proj(x).view(B, T, self.n_kv_head, self.head_dim)
        v = self.v_proj(x).view(B, T, self.n_kv_head, self.head_dim).transpose(1, 2)
        q = self.q_norm(q).transpose(1, 2)
        k = self.k_norm(k).transpose(1, 2)
        q = self.rotary(q)
        k = self.rotary(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))
'''

NAME: str | None = "NormedAttention"
OPTIONS: list[str] = ["--causal", "--rope", "halves", "--qk-norm", "head"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 3,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "rope": {"pairing": "halves", "base": 10000.0},
    "qk_norm": "head",
}

CALL = "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
ROTATED = "return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)"
EXPANDED = (
    "expand = torch.arange(self.n_head) {rule}\n        y = F.scaled_dot_product_attention("
    "q, k[:, expand], v[:, expand], is_causal=True)"
)
WHOLE = (
    "{x} = {x} * torch.rsqrt({x}.square().mean(dim=(-2, -1), keepdim=True) + self.{x}_norm.eps)\n"
    "        {x} = ({x} * self.{x}_norm.weight).transpose(1, 2)"
)


def with_mask(mask: str) -> Edits:
    """The call with a mask built from ones."""
    ones = "torch.ones(T, T, dtype=torch.bool)"
    return [("is_causal=True", f"attn_mask={mask.replace('ones', ones)}")]


def with_scale(scale: str) -> Edits:
    """The call with a scale of its own."""
    return [("is_causal=True", f"is_causal=True, scale={scale}")]


FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.v_proj(x)", "self.k_proj(x)")],
    "key-value-swapped": [("k = self.k_proj(x)", "k = self.v_proj(x)"), ("v = self.v_proj(x)", "v = self.k_proj(x)")],
    "projection-transposed": [("self.q_proj(x)", "(x @ self.q_proj.weight)")],
    "heads-merged-by-view": [("y.transpose(1, 2).flatten(2)", "y.reshape(B, T, -1)")],
    "strided-read-as-contiguous": [
        (
            "self.v_proj(x).view(B, T, self.n_kv_head, self.head_dim).transpose(1, 2)",
            "self.v_proj(x).view(B, self.n_kv_head, T, self.head_dim)",
        ),
    ],
    "kv-heads-tiled": [("y = " + CALL, EXPANDED.format(rule="% self.n_kv_head"))],
    "kv-head-divisor": [("y = " + CALL, EXPANDED.format(rule="// self.n_kv_head"))],
    "qk-norm-missing": [("self.q_norm(q)", "q"), ("self.k_norm(k)", "k")],
    "qk-norm-axis": [
        ("q = self.q_norm(q).transpose(1, 2)", WHOLE.format(x="q")),
        ("k = self.k_norm(k).transpose(1, 2)", WHOLE.format(x="k")),
    ],
    "rope-layout": [
        ("a, b = x.chunk(2, dim=-1)", "a, b = x[..., 0::2], x[..., 1::2]"),
        (ROTATED, "return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)"),
    ],
    "rope-layout-mixed": [
        (
            "cos, sin = angle.cos(), angle.sin()",
            "cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)",
        ),
        (ROTATED, "return x * cos + torch.cat([-b, a], dim=-1) * sin"),
    ],
    "rope-sign": [(ROTATED, "return torch.cat([a * cos + b * sin, b * cos - a * sin], dim=-1)")],
    "rope-frequencies": [("base=10000.0", "base=1000000.0")],
    "scale-missing": with_scale("1.0"),
    "scale-by-model-width": with_scale("x.size(-1) ** -0.5"),
    "scale-inverted": with_scale("self.head_dim ** 0.5"),
    "scale-twice": [("q = self.rotary(q)", "q = self.rotary(q) / self.head_dim ** 0.5")],
    "scale-other-constant": with_scale("0.12"),
    "causal-missing": [("is_causal=True, ", "")],
    "causal-strict": with_mask("ones.tril(-1)"),
    "causal-one-ahead": with_mask("ones.tril(1)"),
    "causal-inverted": with_mask("~ones.tril()"),
    "mask-added-as-number": with_mask("ones.tril().to(x.dtype)"),
    "mask-fill-too-small": with_mask("ones.triu(1).to(x.dtype) * -8"),
    "weights-times-key": [("(q, k, v, is_causal", "(q, k, k, is_causal")],
    "output-projection-missing": [("self.o_proj(y.transpose(1, 2).flatten(2))", "y.transpose(1, 2).flatten(2)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "qk-norm-missing: key only": [("self.k_norm(k)", "k")],
    "qk-norm-after-rope: order": [
        ("self.q_norm(q)", "q"),
        ("self.k_norm(k)", "k"),
        ("q = self.rotary(q)", "q = self.q_norm(self.rotary(q))"),
        ("k = self.rotary(k)", "k = self.k_norm(self.rotary(k))"),
    ],
    "rope-frequencies: a literal 500": [("base=10000.0", "base=500.0")],
    "rope-sign: positions negated": [("t = torch.arange(x.size(-2)", "t = -torch.arange(x.size(-2)")],
    "rope-over-heads: before the transpose": [
        ("self.q_norm(q).transpose(1, 2)", "self.rotary(self.q_norm(q)).transpose(1, 2)"),
        ("self.k_norm(k).transpose(1, 2)", "self.rotary(self.k_norm(k)).transpose(1, 2)"),
        ("        q = self.rotary(q)\n        k = self.rotary(k)\n", ""),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("qk-norm-missing", "kv-heads-tiled"),
    ("qk-norm-axis", "rope-layout"),
    ("rope-sign", "causal-missing"),
    ("rope-frequencies", "scale-by-model-width"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "norm after the transpose": [
        ("q = self.q_norm(q).transpose(1, 2)", "q = self.q_norm(q.transpose(1, 2))"),
    ],
    "heads expanded": [("y = " + CALL, EXPANDED.format(rule="// (self.n_head // self.n_kv_head)"))],
    "built-in norm": [
        (
            "q = self.q_norm(q).transpose(1, 2)",
            "q = F.rms_norm(q, (self.head_dim,), self.q_norm.weight, 1e-6).transpose(1, 2)",
        )
    ],
    "softmax by hand": [
        (
            "y = " + CALL,
            "k, v = (s.repeat_interleave(self.n_head // self.n_kv_head, dim=1) for s in (k, v))\n"
            "        s = (q @ k.mT) * self.head_dim**-0.5 + torch.full((T, T), -1e4, dtype=x.dtype).triu(1)\n"
            "        y = s.softmax(-1) @ v",
        ),
    ],
    "common shift of positions": [
        (
            "torch.arange(x.size(-2), dtype=x.dtype, device=x.device)",
            "torch.arange(x.size(-2), dtype=x.dtype, device=x.device) + 17",
        )
    ],
    "norm in float32": [
        (
            "return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight",
            "y = x.float()\n        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) "
            "* self.weight",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["NormedAttention"]())
