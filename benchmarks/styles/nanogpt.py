"""The taste of a minimal GPT: a config object, one fused `c_attn`, a registered lower triangle, `c_proj`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = """import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 512
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 6
    n_embd: int = 48
    dropout: float = 0.1
    bias: bool = True


class CausalSelfAttention(nn.Module):

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        # key, query, value projections for all heads, in one go
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.dropout = config.dropout
        causal = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", causal.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)

        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v  # (B, nh, T, T) x (B, nh, T, hs) -> (B, nh, T, hs)
        y = y.transpose(1, 2).contiguous().view(B, T, C)

        y = self.resid_dropout(self.c_proj(y))
        return y


class MLP(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))
"""

NAME: str | None = "CausalSelfAttention"
OPTIONS: list[str] = []
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "dropout_p": 0.1,
    "projection_bias": True,
}

MASK = 'att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))'
SPLIT = "q, k, v = self.c_attn(x).split(self.n_embd, dim=2)"
SCALE = " * (1.0 / math.sqrt(k.size(-1)))"
BY_VIEW = ".view(B, self.n_head, T, C // self.n_head)"
BY_TOKEN = ".view(B, T, self.n_head, C // self.n_head).transpose(1, 2)"
FUSED_BY_HEAD = [
    (SPLIT, "q, k, v = self.c_attn(x).view(B, T, self.n_head, -1).chunk(3, dim=-1)"),
    *[(f"{letter} = {letter}{BY_TOKEN}", f"{letter} = {letter}.transpose(1, 2)") for letter in "kqv"],
]

FAULTS: dict[str, Edits] = {
    "value-is-key": [(SPLIT, SPLIT + "\n        v = k")],
    "key-value-swapped": [("q, k, v = self.c_attn(x)", "q, v, k = self.c_attn(x)")],
    "projection-transposed": [("self.c_proj(y))", "F.linear(y, self.c_proj.weight.t(), self.c_proj.bias))")],
    "fused-qkv-layout": FUSED_BY_HEAD,
    "heads-split-by-view": [
        (f"{letter} = {letter}{BY_TOKEN}", f"{letter} = {letter}.reshape(B, self.n_head, T, C // self.n_head)")
        for letter in "kqv"
    ],
    "strided-read-as-contiguous": [(f"v = v{BY_TOKEN}", f"v = v.contiguous(){BY_VIEW}")],
    "heads-merged-by-view": [("y.transpose(1, 2).contiguous().view(B, T, C)", "y.contiguous().view(B, T, C)")],
    "scores-transposed": [("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("math.sqrt(k.size(-1))", "math.sqrt(C)")],
    "scale-inverted": [(SCALE, " * math.sqrt(k.size(-1))")],
    "scale-twice": [("math.sqrt(k.size(-1))", "k.size(-1)")],
    "scale-after-softmax": [(SCALE, ""), ("y = att @ v", "y = (att @ v) / math.sqrt(k.size(-1))")],
    "scale-other-constant": [("math.sqrt(k.size(-1))", "math.sqrt(k.size(1))")],
    "causal-missing": [(MASK, "")],
    "causal-strict": [
        (
            "torch.tril(torch.ones(config.block_size, config.block_size))",
            "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=-1)",
        )
    ],
    "causal-one-ahead": [
        (
            "torch.tril(torch.ones(config.block_size, config.block_size))",
            "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=1)",
        )
    ],
    "causal-inverted": [("self.bias[:, :, :T, :T] == 0", "self.bias[:, :, :T, :T] == 1")],
    "mask-added-as-number": [(MASK, "att = att + self.bias[:, :, :T, :T]")],
    "masked-scores-zeroed": [(MASK, "att = att * self.bias[:, :, :T, :T]")],
    "mask-after-softmax": [
        (MASK, ""),
        ("att = F.softmax(att, dim=-1)", "att = F.softmax(att, dim=-1) * self.bias[:, :, :T, :T]"),
    ],
    "mask-fill-too-small": [('float("-inf")', "-100.0")],
    "softmax-over-queries": [("dim=-1)", "dim=-2)")],
    "softmax-over-heads-or-batch": [('float("-inf")', "-1e10"), ("F.softmax(att, dim=-1)", "F.softmax(att, dim=1)")],
    "softmax-low-precision": [("F.softmax(att, dim=-1)", "F.softmax(att.bfloat16(), dim=-1).type_as(v)")],
    "weights-times-key": [("y = att @ v", "y = att @ k")],
    "dropout-in-eval": [("self.attn_dropout(att)", "F.dropout(att, p=self.dropout)")],
    "output-projection-missing": [("self.resid_dropout(self.c_proj(y))", "self.resid_dropout(y)")],
    "bias-term": [("self.c_proj(y))", "F.linear(y, self.c_proj.weight))")],
}
MORE_FAULTS: dict[str, Edits] = {
    "fused-qkv-layout: viewed (H, 3, d)": [
        (SPLIT, "q, k, v = self.c_attn(x).view(B, T, self.n_head, 3, C // self.n_head).unbind(dim=3)"),
        *[(f"{letter} = {letter}{BY_TOKEN}", f"{letter} = {letter}.transpose(1, 2)") for letter in "kqv"],
    ],
    "dropout-in-eval: after the projection": [("self.resid_dropout(self.c_proj(y))", "F.dropout(self.c_proj(y), 0.1)")],
    "mask-fill-too-small: -5": [('float("-inf")', "-5")],
    "masked-scores-zeroed: fill 1e-9": [('float("-inf")', "1e-9")],
    "bias-term: query": [(SPLIT, SPLIT + "\n        q = q - self.c_attn.bias[:C]")],
    "causal-missing: only in training": [(MASK, "if self.training:\n            " + MASK)],
}
PAIRS = pairs(
    FAULTS,
    ("fused-qkv-layout", "scale-missing"),
    ("key-value-swapped", "causal-one-ahead"),
    ("heads-merged-by-view", "mask-fill-too-small"),
    ("scale-inverted", "masked-scores-zeroed"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "flash": [
        ("att = (q @ k.transpose(-2, -1))" + SCALE, ""),
        (MASK, ""),
        ("att = F.softmax(att, dim=-1)", ""),
        ("att = self.attn_dropout(att)", ""),
        ("y = att @ v ", "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ],
    "fill -1e4": [('float("-inf")', "-1e4")],
    "scale on the query": [(SCALE, ""), ("q = q.view(", "q = (q * (C // self.n_head) ** -0.5).view(")],
    "chunk": [(".split(self.n_embd, dim=2)", ".chunk(3, dim=-1)")],
    "float32 softmax": [("F.softmax(att, dim=-1)", "F.softmax(att, dim=-1, dtype=torch.float32).type_as(v)")],
    "reshape": [(".contiguous().view(B, T, C)", ".reshape(B, T, C)")],
    "additive triangle": [(MASK, "att = att + (1.0 - self.bias[:, :, :T, :T]) * torch.finfo(torch.float32).min")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CausalSelfAttention"](namespace["GPTConfig"](block_size=64)))
