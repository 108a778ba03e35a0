"""The taste of a capped decoder: a scale of its own, capped scores, grouped heads, a window, rope by a helper."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


class CappedConfig:
    hidden_size: int = 48
    num_attention_heads: int = 6
    num_key_value_heads: int = 3
    head_dim: int = 8
    query_pre_attn_scalar: int = 16
    attn_logit_softcapping: Optional[float] = 3.0
    sliding_window: int = 6
    rope_theta: float = 10000.0


def apply_rope(x, theta):
    """x: (batch, tokens, heads, head_dim)"""
    dim = x.shape[-1]
    timescale = theta ** (2 * torch.arange(dim // 2, dtype=x.dtype, device=x.device) / dim)
    radians = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)[:, None] / timescale
    sin, cos = radians.sin()[None, :, None, :], radians.cos()[None, :, None, :]
    first_half, second_half = torch.split(x, dim // 2, dim=-1)
    first_part = first_half * cos - second_half * sin
    second_part = second_half * cos + first_half * sin
    return torch.cat([first_part, second_part], dim=-1)


class LocalCausalAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.num_queries_per_kv = self.num_heads // self.num_kv_heads
        self.head_dim = config.head_dim
        self.hidden_size = config.hidden_size
        self.q_size = self.num_heads * self.head_dim
        self.kv_size = self.num_kv_heads * self.head_dim
        self.scaling = config.query_pre_attn_scalar**-0.5
        self.attn_logit_softcapping = config.attn_logit_softcapping
        self.sliding_window = config.sliding_window
        self.rope_theta = config.rope_theta
        self.qkv_proj = nn.Linear(self.hidden_size, self.q_size + 2 * self.kv_size, bias=False)
        self.o_proj = nn.Linear(self.q_size, self.hidden_size, bias=False)

    def forward(self, hidden_states):
        batch_size, input_len, _ = hidden_states.shape
        qkv = self.qkv_proj(hidden_states)
        xq, xk, xv = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        xq = xq.view(batch_size, -1, self.num_heads, self.head_dim)
        xk = xk.view(batch_size, -1, self.num_kv_heads, self.head_dim)
        xv = xv.view(batch_size, -1, self.num_kv_heads, self.head_dim)

        xq = apply_rope(xq, self.rope_theta)
        xk = apply_rope(xk, self.rope_theta)
        if self.num_kv_heads != self.num_heads:
            xk = torch.repeat_interleave(xk, self.num_queries_per_kv, dim=2)
            xv = torch.repeat_interleave(xv, self.num_queries_per_kv, dim=2)

        q, k, v = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        q = q * self.scaling
        scores = torch.matmul(q, k.transpose(2, 3))
        if self.attn_logit_softcapping is not None:
            scores = scores / self.attn_logit_softcapping
            scores = torch.tanh(scores)
            scores = scores * self.attn_logit_softcapping

        min_value = -2.3819763e38
        all_ones = torch.ones(input_len, input_len, dtype=torch.bool, device=q.device)
        visible = all_ones.tril() & all_ones.triu(1 - self.sliding_window)
        scores = scores.masked_fill(~visible, min_value)
        scores = F.softmax(scores, dim=-1)

        output = torch.matmul(scores, v)
        output = output.transpose(1, 2).contiguous().view(batch_size, input_len, -1)
        return self.o_proj(output)


def build():
    return LocalCausalAttention(CappedConfig())
'''

NAME: str | None = "build"
OPTIONS: list[str] = ["--causal", "--window", "6", "--softcap", "3", "--scale", "0.25", "--rope", "halves"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 3,
    "head_dim": 8,
    "embed_dim": 48,
    "scale": 0.25,
    "causal": True,
    "window": 6,
    "softcap": 3.0,
    "rope": {"pairing": "halves", "base": 10000.0},
}

SCALE = "        q = q * self.scaling\n"
CAP = (
    "        if self.attn_logit_softcapping is not None:\n"
    "            scores = scores / self.attn_logit_softcapping\n"
    "            scores = torch.tanh(scores)\n"
    "            scores = scores * self.attn_logit_softcapping\n"
)
FILL = "        scores = scores.masked_fill(~visible, min_value)\n"
SOFTMAX = "scores = F.softmax(scores, dim=-1)"
VISIBLE = "all_ones.tril() & all_ones.triu(1 - self.sliding_window)"
REPEAT = "torch.repeat_interleave({x}, self.num_queries_per_kv, dim=2)"
SPLIT = "first_half, second_half = torch.split(x, dim // 2, dim=-1)"
JOIN = "return torch.cat([first_part, second_part], dim=-1)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [
        (
            "xq, xk, xv = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)",
            "xq, xk, xv = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)\n        xv = xk",
        )
    ],
    "key-value-swapped": [("xq, xk, xv = qkv.split", "xq, xv, xk = qkv.split")],
    "projection-transposed": [("self.o_proj(output)", "output @ self.o_proj.weight")],
    "heads-split-by-view": [
        (
            f"{x} = {x}.view(batch_size, -1, {heads}, self.head_dim)",
            f"{x} = {x}.reshape(batch_size, {heads}, -1, self.head_dim).transpose(1, 2)",
        )
        for x, heads in (("xq", "self.num_heads"), ("xk", "self.num_kv_heads"), ("xv", "self.num_kv_heads"))
    ],
    "heads-merged-by-view": [("output.transpose(1, 2).contiguous().view", "output.contiguous().view")],
    "kv-heads-tiled": [(REPEAT.format(x=x), f"{x}.repeat(1, 1, self.num_queries_per_kv, 1)") for x in ("xk", "xv")],
    "kv-head-divisor": [
        (REPEAT.format(x=x), f"{x}[:, :, torch.arange(self.num_heads) // self.num_kv_heads]") for x in ("xk", "xv")
    ],
    "rope-layout": [
        (SPLIT, "first_half, second_half = x[..., 0::2], x[..., 1::2]"),
        (JOIN, "return torch.stack([first_part, second_part], dim=-1).flatten(-2)"),
    ],
    "rope-sign": [
        ("first_half * cos - second_half * sin", "first_half * cos + second_half * sin"),
        ("second_half * cos + first_half * sin", "second_half * cos - first_half * sin"),
    ],
    "rope-frequencies": [("rope_theta: float = 10000.0", "rope_theta: float = 1000000.0")],
    "scores-transposed": [("torch.matmul(q, k.transpose(2, 3))", "torch.matmul(k, q.transpose(2, 3))")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("config.query_pre_attn_scalar**-0.5", "config.hidden_size**-0.5")],
    "scale-inverted": [("config.query_pre_attn_scalar**-0.5", "config.query_pre_attn_scalar**0.5")],
    "scale-other-constant": [("config.query_pre_attn_scalar**-0.5", "config.head_dim**-0.5")],
    "scale-after-softmax": [(SCALE, ""), (SOFTMAX, SOFTMAX + " * self.scaling")],
    "softcap-missing": [(CAP, "")],
    "softcap-before-scale": [(SCALE, ""), (CAP, CAP + "        scores = scores * self.scaling\n")],
    "softcap-after-mask": [(CAP, ""), (FILL, FILL + CAP)],
    "causal-missing": [(VISIBLE, "all_ones.triu(1 - self.sliding_window)")],
    "causal-strict": [
        ("all_ones.tril()", "all_ones.tril(-1)"),
        ("min_value = -2.3819763e38", 'min_value = float("-inf")'),
    ],
    "causal-one-ahead": [("all_ones.tril()", "all_ones.tril(1)")],
    "mask-added-as-number": [(FILL, "        scores = scores + visible\n")],
    "masked-scores-zeroed": [("min_value = -2.3819763e38", "min_value = 0.0")],
    "mask-after-softmax": [(FILL, ""), (SOFTMAX, SOFTMAX + " * visible")],
    "mask-fill-too-small": [("min_value = -2.3819763e38", "min_value = -6")],
    "window-off-by-one": [("1 - self.sliding_window", "-self.sliding_window")],
    "window-missing": [(VISIBLE, "all_ones.tril()")],
    "softmax-over-queries": [("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-2)")],
    "softmax-over-heads-or-batch": [("F.softmax(scores, dim=-1)", "F.softmax(scores, dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "scores = F.softmax(scores.half(), dim=-1).type_as(q)")],
    "weights-times-key": [("torch.matmul(scores, v)", "torch.matmul(scores, k)")],
    "output-projection-missing": [("self.o_proj(output)", "output")],
}
MORE_FAULTS: dict[str, Edits] = {
    "softcap-missing: config not read": [("= config.attn_logit_softcapping", "= None")],
    "softcap-after-mask: fill capped": [(CAP, ""), (FILL, FILL + "        scores = 3.0 * torch.tanh(scores / 3.0)\n")],
    "window-off-by-one: one too few": [("1 - self.sliding_window", "2 - self.sliding_window")],
    "rope-frequencies: exponent halved": [("theta ** (2 * torch.arange", "theta ** (torch.arange")],
}
PAIRS = pairs(
    FAULTS,
    ("softcap-missing", "window-off-by-one"),
    ("scale-other-constant", "kv-heads-tiled"),
    ("rope-layout", "causal-missing"),
    ("softcap-after-mask", "value-is-key"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "scale after the product": [
        (SCALE, ""),
        ("scores = torch.matmul(q, k.transpose(2, 3))", "scores = torch.matmul(q, k.transpose(2, 3)) * self.scaling"),
    ],
    "scale within the tanh": [
        (SCALE, ""),
        (
            "scores = scores / self.attn_logit_softcapping",
            "scores = scores * (self.scaling / self.attn_logit_softcapping)",
        ),
    ],
    "fill -1e4": [("min_value = -2.3819763e38", "min_value = -1e4")],
    "band in one comparison": [
        (
            VISIBLE,
            "(d := torch.arange(input_len)[:, None] - torch.arange(input_len)).ge(0) & d.lt(self.sliding_window)",
        ),
    ],
    "float32 softmax": [(SOFTMAX, "scores = F.softmax(scores.float(), dim=-1).type_as(q)")],
    "positions from 7 on": [("radians = torch.arange(x.shape[1], ", "radians = torch.arange(7, 7 + x.shape[1], ")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches longer than the window."""
    return module_outputs(namespace["build"]())
