"""The taste of a long-context pretraining team: head-major fused `query_key_value` and ALiBi as a bias to `baddbmm`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import math

import torch
from torch import nn
from torch.nn import functional as F


def get_slopes(n):
    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_two(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_two(closest) + get_slopes(2 * closest)[0::2][: n - closest]


class CausalAlibiAttention(nn.Module):
    """Causal self-attention without position embeddings: a head's slope times the distance is taken off the score."""

    def __init__(self, hidden_size=48, n_head=6, attention_dropout=0.0):
        super().__init__()
        self.num_heads = n_head
        self.head_dim = hidden_size // n_head
        self.inv_norm_factor = 1.0 / math.sqrt(self.head_dim)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size, bias=True)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.register_buffer("slopes", torch.tensor(get_slopes(n_head)), persistent=False)

    def _split_heads(self, fused_qkv):
        """(batch, tokens, heads * 3 * head_dim), head by head, to three of (batch, tokens, heads, head_dim)"""
        batch_size, seq_length, _ = fused_qkv.shape
        fused_qkv = fused_qkv.view(batch_size, seq_length, self.num_heads, 3, self.head_dim)
        return fused_qkv[..., 0, :], fused_qkv[..., 1, :], fused_qkv[..., 2, :]

    def build_alibi(self, length, dtype):
        positions = torch.arange(length, dtype=dtype, device=self.slopes.device)
        distance = positions[None, :] - positions[:, None]
        return self.slopes.to(dtype)[:, None, None] * distance

    def forward(self, hidden_states):
        batch_size, q_length, _ = hidden_states.shape
        query_layer, key_layer, value_layer = self._split_heads(self.query_key_value(hidden_states))
        query_layer = query_layer.transpose(1, 2).reshape(batch_size * self.num_heads, q_length, self.head_dim)
        key_layer = key_layer.permute(0, 2, 3, 1).reshape(batch_size * self.num_heads, self.head_dim, q_length)
        value_layer = value_layer.transpose(1, 2).reshape(batch_size * self.num_heads, q_length, self.head_dim)

        alibi = self.build_alibi(q_length, hidden_states.dtype)
        alibi = alibi.repeat(batch_size, 1, 1)
        scores = torch.baddbmm(alibi, query_layer, key_layer, beta=1.0, alpha=self.inv_norm_factor)

        scores = scores.view(batch_size, self.num_heads, q_length, q_length)
        causal = torch.ones(q_length, q_length, dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(causal, scores, torch.finfo(scores.dtype).min)
        attention_probs = F.softmax(scores, dim=-1)
        attention_probs = self.attention_dropout(attention_probs)

        probs = attention_probs.view(batch_size * self.num_heads, q_length, q_length)
        context_layer = torch.bmm(probs, value_layer)
        context_layer = context_layer.view(batch_size, self.num_heads, q_length, self.head_dim).transpose(1, 2)
        return self.dense(context_layer.reshape(batch_size, q_length, -1))
'''

NAME: str | None = None
OPTIONS: list[str] = ["--alibi"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "alibi": True,
    "projection_bias": True,
}

FUSED = "fused_qkv = fused_qkv.view(batch_size, seq_length, self.num_heads, 3, self.head_dim)"
PARTS = "return fused_qkv[..., 0, :], fused_qkv[..., 1, :], fused_qkv[..., 2, :]"
ALPHA = "beta=1.0, alpha=self.inv_norm_factor"
FACTOR = "1.0 / math.sqrt(self.head_dim)"
WHERE = "scores = torch.where(causal, scores, torch.finfo(scores.dtype).min)"
SOFTMAX = "F.softmax(scores, dim=-1)"
SLOPED = "return self.slopes.to(dtype)[:, None, None] * distance"
VALUES = "value_layer = value_layer.transpose(1, 2).reshape(batch_size * self.num_heads, q_length, self.head_dim)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("fused_qkv[..., 1, :], fused_qkv[..., 2, :]", "fused_qkv[..., 1, :], fused_qkv[..., 1, :]")],
    "key-value-swapped": [("fused_qkv[..., 1, :], fused_qkv[..., 2, :]", "fused_qkv[..., 2, :], fused_qkv[..., 1, :]")],
    "projection-transposed": [
        (
            "self.dense(context_layer.reshape(batch_size, q_length, -1))",
            "context_layer.reshape(batch_size, q_length, -1) @ self.dense.weight + self.dense.bias",
        )
    ],
    "fused-qkv-layout": [
        (FUSED, "fused_qkv = fused_qkv.view(batch_size, seq_length, 3, self.num_heads, self.head_dim)"),
        (PARTS, "return fused_qkv[:, :, 0], fused_qkv[:, :, 1], fused_qkv[:, :, 2]"),
    ],
    "strided-read-as-contiguous": [(VALUES, VALUES.replace(".transpose(1, 2)", ""))],
    "heads-merged-by-view": [
        ("q_length, self.head_dim).transpose(1, 2)\n        return", "q_length, self.head_dim)\n        return"),
    ],
    "scores-transposed": [
        ("query_layer, key_layer, beta", "key_layer.transpose(1, 2), query_layer.transpose(1, 2), beta"),
    ],
    "scale-missing": [(ALPHA, "beta=1.0, alpha=1.0")],
    "scale-by-model-width": [(FACTOR, "1.0 / math.sqrt(hidden_size)")],
    "scale-inverted": [(FACTOR, "math.sqrt(self.head_dim)")],
    "scale-twice": [(FACTOR, "1.0 / self.head_dim")],
    "scale-after-softmax": [(ALPHA, "beta=1.0, alpha=1.0"), (SOFTMAX, SOFTMAX + " * self.inv_norm_factor")],
    "scale-other-constant": [(FACTOR, "1.0 / math.sqrt(self.num_heads)")],
    "alibi-slopes": [
        (
            "    if math.log2(n).is_integer():\n        return power_of_two(n)\n    closest",
            "    return power_of_two(n)\n    closest",
        )
    ],
    "alibi-sign": [("positions[None, :] - positions[:, None]", "positions[:, None] - positions[None, :]")],
    "bias-scaled": [(ALPHA + ")", "beta=1.0, alpha=1.0) * self.inv_norm_factor")],
    "causal-missing": [(WHERE, "")],
    "causal-strict": [(".tril()", ".tril(-1)"), ("torch.finfo(scores.dtype).min", 'float("-inf")')],
    "causal-one-ahead": [(".tril()", ".tril(1)")],
    "causal-inverted": [(".tril()", ".triu()")],
    "mask-added-as-number": [(WHERE, "scores = scores + causal")],
    "masked-scores-zeroed": [(WHERE, "scores = torch.where(causal, scores, 0.0)")],
    "mask-after-softmax": [(WHERE, ""), (SOFTMAX, SOFTMAX + " * causal")],
    "mask-fill-too-small": [("torch.finfo(scores.dtype).min", "-12.0")],
    "softmax-over-queries": [("scores, dim=-1)", "scores, dim=-2)")],
    "softmax-over-heads-or-batch": [("scores, dim=-1)", "scores, dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "F.softmax(scores, dim=-1, dtype=torch.float16).to(value_layer.dtype)")],
    "weights-times-key": [("torch.bmm(probs, value_layer)", "torch.bmm(probs, key_layer.transpose(1, 2))")],
    "output-projection-missing": [
        (
            "self.dense(context_layer.reshape(batch_size, q_length, -1))",
            "context_layer.reshape(batch_size, q_length, -1)",
        )
    ],
    "bias-term": [("self.query_key_value(hidden_states)", "F.linear(hidden_states, self.query_key_value.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "alibi-slopes: repeated over the batch head by head": [
        ("alibi = alibi.repeat(batch_size, 1, 1)", "alibi = alibi.repeat_interleave(batch_size, dim=0)"),
    ],
    "alibi-slopes: half the ratio": [("math.log2(n) - 3)", "math.log2(n) - 2)")],
    "alibi-sign: slope negated": [(SLOPED, "return -self.slopes.to(dtype)[:, None, None] * distance")],
    "alibi-missing: beta zero": [(ALPHA, "beta=0.0, alpha=self.inv_norm_factor")],
    "bias-term: dense": [
        (
            "self.dense(context_layer.reshape(batch_size, q_length, -1))",
            "F.linear(context_layer.reshape(batch_size, q_length, -1), self.dense.weight)",
        )
    ],
}
PAIRS = pairs(
    FAULTS,
    ("alibi-sign", "scale-missing"),
    ("alibi-slopes", "fused-qkv-layout"),
    ("causal-one-ahead", "bias-scaled"),
    ("heads-merged-by-view", "key-value-swapped"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "slope times the key's place": [
        ("distance = positions[None, :] - positions[:, None]", "distance = positions[None, :].expand(length, -1)"),
    ],
    "slopes with their dtype spelled out": [
        ("torch.tensor(get_slopes(n_head))", "torch.tensor(get_slopes(n_head), dtype=torch.float32)"),
    ],
    "scores, then bias": [
        (
            "torch.baddbmm(alibi, query_layer, key_layer, " + ALPHA + ")",
            "query_layer @ key_layer * self.inv_norm_factor + alibi",
        ),
    ],
    "fill -1e4": [("torch.finfo(scores.dtype).min", "-1e4")],
    "scale on the query": [
        (ALPHA, "beta=1.0"),
        ("query_layer, key_layer, b", "query_layer * self.inv_norm_factor, key_layer, b"),
    ],
    "float32 softmax": [(SOFTMAX, "F.softmax(scores, dim=-1, dtype=torch.float32).to(value_layer.dtype)")],
    "chunk by head": [
        (FUSED, "fused_qkv = fused_qkv.unflatten(-1, (self.num_heads, -1))"),
        (PARTS, "return fused_qkv.chunk(3, dim=-1)"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CausalAlibiAttention"]())
