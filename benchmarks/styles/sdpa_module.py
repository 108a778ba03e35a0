"""The taste of somebody who leaves the middle to `F.scaled_dot_product_attention(..., is_causal=True)`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = """import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.1, bias: bool = True):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = self.in_proj(x).chunk(3, dim=-1)
        query = query.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        key = key.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        value = value.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

        dropout_p = self.dropout if self.training else 0.0
        context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p, is_causal=True)

        context = context.transpose(1, 2).reshape(batch, length, width)
        return self.out_proj(context)
"""

NAME: str | None = None
OPTIONS: list[str] = ["--causal", "--init", '{"embed_dim": 48, "num_heads": 6}']
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "dropout_p": 0.1,
    "projection_bias": True,
}

CALL = "F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p, is_causal=True)"


def with_mask(mask: str) -> Edits:
    """The call with an attn_mask in place of is_causal; `ones` is a matrix of ones."""
    return [
        (
            CALL,
            "F.scaled_dot_product_attention(query, key, value, attn_mask="
            + mask.replace("ones", "torch.ones(length, length, dtype=torch.bool)")
            + ", dropout_p=dropout_p)",
        )
    ]


def with_scale(scale: str) -> Edits:
    """The call with a scale of its own."""
    return [("is_causal=True)", f"is_causal=True, scale={scale})")]


def by_view(*names: str) -> Edits:
    """The named tensors split into heads by a reshape alone."""
    return [
        (
            f"{name} = {name}.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)",
            f"{name} = {name}.reshape(batch, self.num_heads, length, self.head_dim)",
        )
        for name in names
    ]


FAULTS: dict[str, Edits] = {
    "value-is-key": [(CALL, CALL.replace("key, value", "key, key"))],
    "key-value-swapped": [(CALL, CALL.replace("key, value", "value, key"))],
    "projection-transposed": [
        ("self.out_proj(context)", "F.linear(context, self.out_proj.weight.T, self.out_proj.bias)"),
    ],
    "fused-qkv-layout": [
        (
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)",
            "fused = self.in_proj(x).view(batch, length, self.num_heads, 3 * self.head_dim)\n"
            "        query, key, value = (part.flatten(2) for part in fused.chunk(3, dim=-1))",
        ),
    ],
    "heads-split-by-view": by_view("query", "key", "value"),
    "strided-read-as-contiguous": by_view("value"),
    "heads-merged-by-view": [("context.transpose(1, 2).reshape", "context.reshape")],
    "scores-transposed": [(CALL, CALL.replace("query, key", "key, query"))],
    "scale-missing": with_scale("1.0"),
    "scale-by-model-width": with_scale("width ** -0.5"),
    "scale-inverted": with_scale("self.head_dim ** 0.5"),
    "scale-twice": [
        (
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)",
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)\n        query = query / self.head_dim ** 0.5",
        )
    ],
    "scale-other-constant": with_scale("self.num_heads ** -0.5"),
    "causal-missing": [(", is_causal=True", "")],
    "causal-strict": with_mask("ones.tril(-1)"),
    "causal-one-ahead": with_mask("ones.tril(1)"),
    "causal-inverted": with_mask("ones.triu(1)"),
    "mask-added-as-number": with_mask("ones.tril().to(query.dtype)"),
    "mask-fill-too-small": with_mask("-10.0 * ones.triu(1).to(query.dtype)"),
    "softmax-low-precision": [
        (
            CALL,
            "F.scaled_dot_product_attention(\n            query.bfloat16(), key.bfloat16(), value.bfloat16(), "
            "dropout_p=dropout_p, is_causal=True\n        ).to(x.dtype)",
        ),
    ],
    "dropout-in-eval": [("self.dropout if self.training else 0.0", "self.dropout")],
    "output-projection-missing": [("return self.out_proj(context)", "return context")],
    "bias-term": [("return self.out_proj(context)", "return F.linear(context, self.out_proj.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "attends-over-batch: time first assumed": [
        (
            "        batch, length, width = x.shape",
            "        x = x.transpose(0, 1)\n        batch, length, width = x.shape",
        ),
        ("return self.out_proj(context)", "return self.out_proj(context).transpose(0, 1)"),
    ],
    "scale-twice: explicit": with_scale("1 / self.head_dim"),
    "causal-missing: only in training": [("is_causal=True", "is_causal=self.training")],
    "bias-term: query without its bias": [
        (
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)",
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)\n        query = query - self.in_proj.bias[:width]",
        ),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("fused-qkv-layout", "scale-by-model-width"),
    ("heads-merged-by-view", "causal-missing"),
    ("causal-one-ahead", "output-projection-missing"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "boolean mask": with_mask("ones.tril()"),
    "additive -1e4": with_mask("-1e4 * ones.triu(1).to(query.dtype)"),
    "own scale": with_scale("self.head_dim ** -0.5"),
    "query scaled before": [
        *with_scale("1.0"),
        (
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)",
            "query, key, value = self.in_proj(x).chunk(3, dim=-1)\n        query = query * self.head_dim ** -0.5",
        ),
    ],
    "unflatten and flatten": [
        ("context.transpose(1, 2).reshape(batch, length, width)", "context.transpose(1, 2).flatten(2)"),
    ],
    "by hand": [
        (
            CALL,
            "torch.softmax(\n            (query @ key.mT / self.head_dim**0.5).masked_fill("
            'torch.ones(length, length).triu(1).bool(), float("-inf")), dim=-1\n        ) @ value',
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["SelfAttention"](48, 6))
