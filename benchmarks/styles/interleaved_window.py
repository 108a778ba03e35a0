"""The taste of a research release: `wq, wk, wv, wo`, rope by complex numbers on adjacent channels, a sliding window."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = """from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn


@dataclass
class ModelArgs:
    dim: int = 48
    n_heads: int = 6
    n_kv_heads: int = 2
    head_dim: int = 8
    sliding_window: int = 5
    rope_theta: float = 10000.0


def precompute_freqs_cis(dim: int, end: int, theta: float) -> torch.Tensor:
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).double() / dim))
    t = torch.arange(end).double()
    freqs = torch.outer(t, freqs)
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary_emb(x: torch.Tensor, freqs_cis: torch.Tensor) -> torch.Tensor:
    # (batch, seq, heads, head_dim) as complex numbers of two neighbouring channels
    x_ = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
    rotated = torch.view_as_real(x_ * freqs_cis[None, :, None, :]).flatten(-2)
    return rotated.type_as(x)


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.n_heads = args.n_heads
        self.n_kv_heads = args.n_kv_heads
        self.repeats = self.n_heads // self.n_kv_heads
        self.sliding_window = args.sliding_window
        self.scale = args.head_dim**-0.5

        self.wq = nn.Linear(args.dim, args.n_heads * args.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.n_kv_heads * args.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.n_kv_heads * args.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * args.head_dim, args.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bsz, seqlen, _ = x.shape

        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.n_heads, self.args.head_dim)
        xk = xk.view(bsz, seqlen, self.n_kv_heads, self.args.head_dim)
        xv = xv.view(bsz, seqlen, self.n_kv_heads, self.args.head_dim)

        freqs_cis = precompute_freqs_cis(self.args.head_dim, seqlen, self.args.rope_theta)
        xq = apply_rotary_emb(xq, freqs_cis)
        xk = apply_rotary_emb(xk, freqs_cis)

        key = torch.repeat_interleave(xk, repeats=self.repeats, dim=2)
        value = torch.repeat_interleave(xv, repeats=self.repeats, dim=2)

        query = xq.transpose(1, 2)
        key = key.transpose(1, 2)
        value = value.transpose(1, 2)
        scores = torch.matmul(query, key.transpose(2, 3)) * self.scale

        # zero where a query may look, minus infinity elsewhere
        band = torch.ones(seqlen, seqlen, dtype=scores.dtype, device=x.device)
        band = torch.tril(band, diagonal=0)
        band = torch.triu(band, diagonal=1 - self.sliding_window)
        scores = scores + torch.log(band)

        scores = scores.softmax(dim=-1)
        output = torch.matmul(scores, value)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)
"""

NAME: str | None = "Attention"
OPTIONS: list[str] = ["--causal", "--window", "5", "--rope", "adjacent"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "window": 5,
    "rope": {"pairing": "adjacent", "base": 10000.0},
}

TRIL = "        band = torch.tril(band, diagonal=0)\n"
TRIU = "        band = torch.triu(band, diagonal=1 - self.sliding_window)\n"
ADD = "scores = scores + torch.log(band)"
SOFTMAX = "scores = scores.softmax(dim=-1)"
KEY_REPEAT = "torch.repeat_interleave(xk, repeats=self.repeats, dim=2)"
VALUE_REPEAT = "torch.repeat_interleave(xv, repeats=self.repeats, dim=2)"
COMPLEX = "x_ = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))"
REAL = "rotated = torch.view_as_real(x_ * freqs_cis[None, :, None, :]).flatten(-2)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.wq(x), self.wk(x), self.wv(x)", "self.wq(x), self.wk(x), self.wk(x)")],
    "key-value-swapped": [("xq, xk, xv = self.wq(x)", "xq, xv, xk = self.wq(x)")],
    "projection-transposed": [("self.wq(x), ", "x @ self.wq.weight, ")],
    "heads-split-by-view": [
        (
            "xq = xq.view(bsz, seqlen, self.n_heads, self.args.head_dim)",
            "xq = xq.view(bsz, self.n_heads, seqlen, self.args.head_dim).transpose(1, 2)",
        ),
        (
            "xk = xk.view(bsz, seqlen, self.n_kv_heads, self.args.head_dim)",
            "xk = xk.view(bsz, self.n_kv_heads, seqlen, self.args.head_dim).transpose(1, 2)",
        ),
        (
            "xv = xv.view(bsz, seqlen, self.n_kv_heads, self.args.head_dim)",
            "xv = xv.view(bsz, self.n_kv_heads, seqlen, self.args.head_dim).transpose(1, 2)",
        ),
    ],
    "heads-merged-by-view": [("output.transpose(1, 2).contiguous().view", "output.contiguous().view")],
    "kv-heads-tiled": [
        (KEY_REPEAT, "xk.repeat(1, 1, self.repeats, 1)"),
        (VALUE_REPEAT, "xv.repeat(1, 1, self.repeats, 1)"),
    ],
    "kv-head-divisor": [
        (KEY_REPEAT, "xk[:, :, torch.arange(self.n_heads) // self.n_heads]"),
        (VALUE_REPEAT, "xv[:, :, torch.arange(self.n_heads) // self.n_heads]"),
    ],
    "rope-layout": [
        (COMPLEX, "x_ = torch.complex(*x.double().chunk(2, dim=-1))"),
        (
            REAL,
            "rotated = x_ * freqs_cis[None, :, None, :]\n    rotated = torch.cat((rotated.real, rotated.imag), dim=-1)",
        ),
    ],
    "rope-sign": [("torch.polar(torch.ones_like(freqs), freqs)", "torch.polar(torch.ones_like(freqs), freqs).conj()")],
    "rope-frequencies": [("torch.arange(0, dim, 2).double() / dim", "torch.arange(0, dim // 2).double() / dim")],
    "rope-layout-mixed": [
        (COMPLEX, "x = x.double()\n    first, second = x.chunk(2, dim=-1)"),
        (
            REAL,
            "cos, sin = (t.repeat_interleave(2, -1)[None, :, None] for t in (freqs_cis.real, freqs_cis.imag))\n"
            "    rotated = x * cos + torch.cat((-second, first), dim=-1) * sin",
        ),
    ],
    "scores-transposed": [("torch.matmul(query, key.transpose(2, 3))", "torch.matmul(key, query.transpose(2, 3))")],
    "scale-missing": [(" * self.scale", "")],
    "scale-by-model-width": [("args.head_dim**-0.5", "args.dim**-0.5")],
    "scale-inverted": [("args.head_dim**-0.5", "args.head_dim**0.5")],
    "scale-twice": [("query = xq.transpose(1, 2)", "query = xq.transpose(1, 2) * self.scale")],
    "scale-after-softmax": [(" * self.scale", ""), (SOFTMAX, "scores = scores.softmax(dim=-1) * self.scale")],
    "scale-other-constant": [("args.head_dim**-0.5", "self.repeats**-0.5")],
    "causal-missing": [(TRIL, "")],
    "causal-one-ahead": [("diagonal=0", "diagonal=1")],
    "causal-strict": [("diagonal=0", "diagonal=-1")],
    "mask-added-as-number": [(ADD, "scores = scores + band")],
    "masked-scores-zeroed": [(ADD, "scores = scores * band")],
    "mask-after-softmax": [(ADD, ""), (SOFTMAX, SOFTMAX + " * band")],
    "mask-fill-too-small": [("torch.log(band)", "(band - 1) * 6")],
    "window-off-by-one": [("diagonal=1 - self.sliding_window", "diagonal=-self.sliding_window")],
    "window-missing": [(TRIU, "")],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2)")],
    "softmax-over-heads-or-batch": [
        ("torch.log(band)", "torch.log(band).clamp(min=-1e9)"),
        ("softmax(dim=-1)", "softmax(dim=1)"),
    ],
    "softmax-low-precision": [(SOFTMAX, "scores = scores.half().softmax(dim=-1).type_as(x)")],
    "weights-times-key": [("torch.matmul(scores, value)", "torch.matmul(scores, key)")],
    "output-projection-missing": [("return self.wo(output)", "return output")],
}
MORE_FAULTS: dict[str, Edits] = {
    "window-off-by-one: one too few": [("1 - self.sliding_window", "2 - self.sliding_window")],
    "kv-heads-tiled: cat": [
        (KEY_REPEAT, "torch.cat([xk] * self.repeats, dim=2)"),
        (VALUE_REPEAT, "torch.cat([xv] * self.repeats, dim=2)"),
    ],
    "rope-frequencies: exponent not divided": [("(0, dim, 2).double() / dim", "(0, dim, 2).double() / (dim // 2)")],
    "rope-missing: keys rotated, then dropped": [
        ("xq = apply_rotary_emb(xq, freqs_cis)", "apply_rotary_emb(xq, freqs_cis)"),
        ("xk = apply_rotary_emb(xk, freqs_cis)", "apply_rotary_emb(xk, freqs_cis)"),
    ],
    "rope-applied-twice: key": [
        ("xk = apply_rotary_emb(xk, freqs_cis)", "xk = apply_rotary_emb(apply_rotary_emb(xk, freqs_cis), freqs_cis)")
    ],
    "value-after-rope: value rotated too": [
        (
            "xk = apply_rotary_emb(xk, freqs_cis)",
            "xk = apply_rotary_emb(xk, freqs_cis)\n        xv = apply_rotary_emb(xv, freqs_cis)",
        ),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("window-off-by-one", "rope-layout"),
    ("kv-heads-tiled", "causal-one-ahead"),
    ("window-missing", "scale-twice"),
    ("rope-sign", "kv-head-divisor"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill by masked_fill": [(ADD, "scores = scores.masked_fill(band == 0, -1e4)")],
    "positions from 100 on": [("torch.arange(end).double()", "torch.arange(100, 100 + end).double()")],
    "permuted channels with the matching pairing": [
        ("return rotated.type_as(x)", "return torch.cat((rotated[..., ::2], rotated[..., 1::2]), dim=-1).type_as(x)"),
    ],
    "conjugate of negative positions": [
        ("torch.polar(torch.ones_like(freqs), freqs)", "torch.polar(torch.ones_like(freqs), -freqs).conj()"),
    ],
    "scale on both": [
        ("query = xq.transpose(1, 2)", "query = xq.transpose(1, 2) * self.scale**0.5"),
        ("key = key.transpose(1, 2)", "key = key.transpose(1, 2) * self.scale**0.5"),
        (" * self.scale\n\n", "\n\n"),
    ],
    "float32 softmax": [(SOFTMAX, "scores = scores.float().softmax(dim=-1).type_as(xq)")],
    "grouped einsum": [
        ("key = torch.repeat_interleave(xk, repeats=self.repeats, dim=2)", "key = xk"),
        (
            "scores = torch.matmul(query, key.transpose(2, 3)) * self.scale",
            "grouped = query.unflatten(1, (self.n_kv_heads, self.repeats))\n"
            '        scores = torch.einsum("bkgtd,bksd->bkgts", grouped, key).flatten(1, 2) * self.scale',
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches longer than the window."""
    return module_outputs(namespace["Attention"](namespace["ModelArgs"]()))
