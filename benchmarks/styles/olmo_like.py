"""The taste of an open training codebase: RMSNorm over the whole query and key width, a mask by `torch.where`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = """import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class ModelConfig:
    d_model: int = 48
    n_heads: int = 6
    attention_dropout: float = 0.0


class CausalBlockAttention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_heads = config.n_heads
        self.d_head = config.d_model // config.n_heads
        self.w_q = nn.Linear(config.d_model, config.d_model, bias=False)
        self.w_k = nn.Linear(config.d_model, config.d_model, bias=False)
        self.w_v = nn.Linear(config.d_model, config.d_model, bias=False)
        self.w_out = nn.Linear(config.d_model, config.d_model, bias=False)
        # over all heads together, before they are split
        self.q_norm = nn.RMSNorm(config.d_model, eps=1e-6)
        self.k_norm = nn.RMSNorm(config.d_model, eps=1e-6)

    def split(self, t):
        return t.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.q_norm(self.w_q(x)))
        k = self.split(self.k_norm(self.w_k(x)))
        v = self.split(self.w_v(x))

        length = x.size(1)
        order = torch.arange(length, device=x.device)
        visible = order[None, :] <= order[:, None]

        logits = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(self.d_head)
        logits = torch.where(visible, logits, -torch.inf)
        probs = logits.softmax(-1)
        context = torch.einsum("bhqk,bhkd->bqhd", probs, v)
        return self.w_out(context.flatten(2))
"""

NAME: str | None = None
OPTIONS: list[str] = ["--causal", "--qk-norm", "width"]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "causal": True, "qk_norm": "width"}

WHERE = "logits = torch.where(visible, logits, -torch.inf)"
PROBS = "probs = logits.softmax(-1)"
SPLIT = "return t.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)"
PER_HEAD = (
    "self.{x}_norm(self.w_{x}(x))",
    "torch.nn.functional.rms_norm(self.w_{x}(x).unflatten(-1, (self.n_heads, -1)), (self.d_head,), "
    "eps=1e-6).flatten(2) * self.{x}_norm.weight",
)

FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.w_v(x)", "self.w_k(x)")],
    "key-value-swapped": [
        ("k = self.split(self.k_norm(self.w_k(x)))", "k = self.split(self.k_norm(self.w_v(x)))"),
        ("v = self.split(self.w_v(x))", "v = self.split(self.w_k(x))"),
    ],
    "projection-transposed": [("self.w_k(x)", "x @ self.w_k.weight")],
    "heads-split-by-view": [(SPLIT, "return t.reshape(t.size(0), self.n_heads, -1, self.d_head)")],
    "strided-read-as-contiguous": [
        ("self.split(self.w_v(x))", "self.w_v(x).view(x.size(0), self.n_heads, -1, self.d_head)")
    ],
    "heads-merged-by-view": [("->bqhd", "->bhqd"), ("context.flatten(2)", "context.reshape(x.shape)")],
    "qk-norm-missing": [("self.q_norm(self.w_q(x))", "self.w_q(x)"), ("self.k_norm(self.w_k(x))", "self.w_k(x)")],
    "qk-norm-axis": [tuple(text.format(x=x) for text in PER_HEAD) for x in "qk"],  # type: ignore[list-item]
    "scores-transposed": [("bhqd,bhkd->bhqk", "bhkd,bhqd->bhqk")],
    "scale-missing": [(" / math.sqrt(self.d_head)", "")],
    "scale-by-model-width": [("math.sqrt(self.d_head)", "math.sqrt(x.size(-1))")],
    "scale-inverted": [("/ math.sqrt(self.d_head)", "* math.sqrt(self.d_head)")],
    "scale-twice": [("math.sqrt(self.d_head)", "self.d_head")],
    "scale-after-softmax": [(" / math.sqrt(self.d_head)", ""), (PROBS, PROBS + " / math.sqrt(self.d_head)")],
    "scale-other-constant": [("math.sqrt(self.d_head)", "math.sqrt(length)")],
    "causal-missing": [("order[None, :] <= order[:, None]", "order[None, :] < length")],
    "causal-strict": [("<= order[:, None]", "< order[:, None]")],
    "causal-one-ahead": [("<= order[:, None]", "<= order[:, None] + 1")],
    "causal-inverted": [("<= order[:, None]", ">= order[:, None]")],
    "mask-added-as-number": [(WHERE, "logits = logits + visible")],
    "masked-scores-zeroed": [("-torch.inf", "0.0")],
    "mask-after-softmax": [(WHERE, ""), (PROBS, "probs = torch.where(visible, logits.softmax(-1), 0.0)")],
    "mask-fill-too-small": [("-torch.inf", "-6.0")],
    "softmax-over-queries": [("softmax(-1)", "softmax(-2)")],
    "softmax-over-heads-or-batch": [("-torch.inf", "-1e9"), ("softmax(-1)", "softmax(0)")],
    "softmax-low-precision": [(PROBS, "probs = logits.bfloat16().softmax(-1).to(x.dtype)")],
    "weights-times-key": [("probs, v)", "probs, k)")],
    "output-projection-missing": [("self.w_out(context.flatten(2))", "context.flatten(2)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "causal-one-ahead: strict of the wrong side": [("<= order[:, None]", "< order[:, None] + 2")],
    "causal-inverted: strictly": [("<= order[:, None]", "> order[:, None]")],
    "causal-inverted: axes exchanged": [("order[None, :] <= order[:, None]", "order[:, None] <= order[None, :]")],
    "qk-norm-missing: query only": [("self.q_norm(self.w_q(x))", "self.w_q(x)")],
    "softmax-over-heads-or-batch: heads": [("-torch.inf", "-1e9"), ("softmax(-1)", "softmax(1)")],
    "projection-transposed: output": [("self.w_out(context.flatten(2))", "context.flatten(2) @ self.w_out.weight")],
}
PAIRS = pairs(
    FAULTS,
    ("qk-norm-missing", "scale-missing"),
    ("qk-norm-axis", "causal-one-ahead"),
    ("heads-split-by-view", "mask-fill-too-small"),
    ("causal-missing", "softmax-low-precision"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("-torch.inf", "-1e4")],
    "scale after the norm": [
        (" / math.sqrt(self.d_head)", ""),
        (
            "q = self.split(self.q_norm(self.w_q(x)))",
            "q = self.split(self.q_norm(self.w_q(x))) / math.sqrt(self.d_head)",
        ),
    ],
    "norm by hand": [
        ("self.q_norm(self.w_q(x))", "self.rms(self.w_q(x), self.q_norm.weight)"),
        (
            "    def split(self, t):",
            "    def rms(self, t, weight):\n"
            "        return weight * t / torch.sqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6)\n\n    def split(self, t):",
        ),
    ],
    "sdpa": [
        (PROBS, ""),
        (
            'context = torch.einsum("bhqk,bhkd->bqhd", probs, v)',
            "context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)",
        ),
    ],
    "keys first": [
        ("bhqd,bhkd->bhqk", "bhqd,bhkd->bhkq"),
        ("torch.where(visible,", "torch.where(visible.T,"),
        ("softmax(-1)", "softmax(-2)"),
        ("bhqk,bhkd->bqhd", "bhkq,bhkd->bqhd"),
    ],
    "float32 softmax": [(PROBS, "probs = logits.float().softmax(-1).to(x.dtype)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CausalBlockAttention"](namespace["ModelConfig"]()))
