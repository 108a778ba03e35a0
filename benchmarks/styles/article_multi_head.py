"""The taste of the tutorial article, its last step: all heads in one class, split by view, then `out_proj`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = """import torch
import torch.nn as nn


class LayerNorm(nn.Module):
    def __init__(self, emb_dim):
        super().__init__()
        self.eps = 1e-5
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * (x - mean) / torch.sqrt(var + self.eps) + self.shift


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"

        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads

        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)  # mixes the heads
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape

        keys = self.W_key(x)  # b, num_tokens, d_out
        queries = self.W_query(x)
        values = self.W_value(x)

        # d_out is num_heads * head_dim
        keys = keys.view(b, num_tokens, self.num_heads, self.head_dim)
        values = values.view(b, num_tokens, self.num_heads, self.head_dim)
        queries = queries.view(b, num_tokens, self.num_heads, self.head_dim)

        # b, num_heads, num_tokens, head_dim
        keys = keys.transpose(1, 2)
        queries = queries.transpose(1, 2)
        values = values.transpose(1, 2)

        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)

        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)

        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context_vec)
"""

NAME: str | None = "MultiHeadAttention"
OPTIONS: list[str] = [
    "--causal",
    "--init",
    '{"d_in": 48, "d_out": 48, "context_length": 512, "dropout": 0.1, "num_heads": 6}',
]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "causal": True, "dropout_p": 0.1}

FILL = "attn_scores.masked_fill_(mask_bool, -torch.inf)"
SOFTMAX = "attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)"


def split_by_view(*names: str) -> Edits:
    """The named tensors split into heads by a view alone."""
    return [
        edit
        for name in names
        for edit in (
            (
                f"{name} = {name}.view(b, num_tokens, self.num_heads, self.head_dim)",
                f"{name} = {name}.view(b, self.num_heads, num_tokens, self.head_dim)",
            ),
            (f"        {name} = {name}.transpose(1, 2)\n", ""),
        )
    ]


FAULTS: dict[str, Edits] = {
    "value-is-key": [("values = self.W_value(x)", "values = self.W_key(x)")],
    "key-value-swapped": [
        ("        keys = self.W_key(x)", "        values = self.W_key(x)"),
        ("values = self.W_value(x)", "keys = self.W_value(x)"),
    ],
    "projection-transposed": [("self.W_key(x)", "x @ self.W_key.weight")],
    "heads-split-by-view": split_by_view("keys", "queries", "values"),
    "strided-read-as-contiguous": split_by_view("values"),
    "heads-merged-by-view": [("(attn_weights @ values).transpose(1, 2)", "attn_weights @ values")],
    "scores-transposed": [("queries @ keys.transpose(2, 3)", "keys @ queries.transpose(2, 3)")],
    "scale-missing": [(" / keys.shape[-1] ** 0.5", "")],
    "scale-by-model-width": [("keys.shape[-1] ** 0.5", "self.d_out ** 0.5")],
    "scale-inverted": [(" / keys.shape[-1] ** 0.5", " / keys.shape[-1] ** -0.5")],
    "scale-twice": [("queries = self.W_query(x)", "queries = self.W_query(x) / self.head_dim ** 0.5")],
    "scale-after-softmax": [
        (" / keys.shape[-1] ** 0.5", ""),
        ("(attn_weights @ values)", "(attn_weights @ values / self.head_dim ** 0.5)"),
    ],
    "scale-other-constant": [("keys.shape[-1] ** 0.5", "keys.shape[2] ** 0.5")],
    "causal-missing": [(FILL, "")],
    "causal-strict": [("diagonal=1", "diagonal=0")],
    "causal-one-ahead": [("diagonal=1", "diagonal=2")],
    "causal-inverted": [
        (
            "mask_bool = self.mask.bool()[:num_tokens, :num_tokens]",
            "mask_bool = ~self.mask.bool()[:num_tokens, :num_tokens]",
        )
    ],
    "mask-added-as-number": [
        (FILL, ""),
        ("attn_scores / keys.shape[-1] ** 0.5", "attn_scores / keys.shape[-1] ** 0.5 + ~mask_bool"),
    ],
    "masked-scores-zeroed": [(FILL, "attn_scores.masked_fill_(mask_bool, 0)")],
    "mask-after-softmax": [
        (FILL, ""),
        ("self.dropout(attn_weights)", "self.dropout(attn_weights.masked_fill(mask_bool, 0.0))"),
    ],
    "mask-fill-too-small": [(FILL, "attn_scores.masked_fill_(mask_bool, -20.0)")],
    "softmax-over-queries": [("0.5, dim=-1)", "0.5, dim=-2)")],
    "softmax-over-heads-or-batch": [("-torch.inf)", "-1e9)"), ("0.5, dim=-1)", "0.5, dim=1)")],
    "softmax-low-precision": [
        (SOFTMAX, SOFTMAX.replace("** 0.5, dim=-1)", "** 0.5, dim=-1, dtype=torch.bfloat16)") + ".to(values.dtype)")
    ],
    "weights-times-key": [("(attn_weights @ values)", "(attn_weights @ keys)")],
    "dropout-in-eval": [("self.dropout(attn_weights)", "torch.dropout(attn_weights, self.dropout.p, True)")],
    "output-projection-missing": [("return self.out_proj(context_vec)", "return context_vec")],
    "bias-term": [("return self.out_proj(context_vec)", "return self.out_proj(context_vec) - self.out_proj.bias")],
}
MORE_FAULTS: dict[str, Edits] = {
    "heads-split-by-view: keys only": split_by_view("keys"),
    "scale-twice: by the dimension": [("keys.shape[-1] ** 0.5", "keys.shape[-1]")],
    "scale-other-constant: number of heads": [("keys.shape[-1] ** 0.5", "self.num_heads ** 0.5")],
    "projection-transposed: output": [
        ("self.out_proj(context_vec)", "context_vec @ self.out_proj.weight + self.out_proj.bias"),
    ],
    "bias-term: twice": [("self.out_proj(context_vec)", "self.out_proj(context_vec) + self.out_proj.bias")],
    "softmax-over-heads-or-batch: batch": [("-torch.inf)", "-1e9)"), ("0.5, dim=-1)", "0.5, dim=0)")],
    "causal-inverted: lower triangle hidden": [("self.mask.bool()[:num_tokens", "self.mask.T.bool()[:num_tokens")],
    "masked-scores-zeroed: multiplied": [(FILL, "attn_scores *= ~mask_bool")],
}
PAIRS = pairs(
    FAULTS,
    ("scale-missing", "causal-missing"),
    ("heads-merged-by-view", "value-is-key"),
    ("causal-one-ahead", "output-projection-missing"),
    ("scale-by-model-width", "mask-after-softmax"),
    ("heads-split-by-view", "scale-inverted"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill finfo.min": [(FILL, "attn_scores.masked_fill_(mask_bool, torch.finfo(attn_scores.dtype).min)")],
    "reshape without contiguous": [(".contiguous().view(b, num_tokens", ".reshape(b, num_tokens")],
    "scale on the query": [
        ("queries = self.W_query(x)", "queries = self.W_query(x) / self.head_dim ** 0.5"),
        (" / keys.shape[-1] ** 0.5", ""),
    ],
    "float32 softmax": [
        (SOFTMAX, SOFTMAX.replace("** 0.5, dim=-1)", "** 0.5, dim=-1, dtype=torch.float32)") + ".to(values.dtype)")
    ],
    "split by permute": [
        (
            "keys.view(b, num_tokens, self.num_heads, self.head_dim)",
            "keys.view(b, num_tokens, self.num_heads, self.head_dim).permute(0, 2, 1, 3)",
        ),
        ("        keys = keys.transpose(1, 2)\n", ""),
    ],
    "where in place of fill": [(FILL, "attn_scores = torch.where(mask_bool, -torch.inf, attn_scores)")],
    "keys first, softmax over dim 2": [
        ("queries @ keys.transpose(2, 3)", "keys @ queries.transpose(2, 3)"),
        (FILL, "attn_scores.masked_fill_(mask_bool.T, -torch.inf)"),
        ("0.5, dim=-1)", "0.5, dim=2)"),
        ("(attn_weights @ values)", "(attn_weights.mT @ values)"),
    ],
    "mask after softmax, renormalised": [
        (FILL, ""),
        (
            SOFTMAX,
            SOFTMAX + "\n        attn_weights = attn_weights.masked_fill(mask_bool, 0.0)"
            "\n        attn_weights = attn_weights / attn_weights.sum(-1, keepdim=True)",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["MultiHeadAttention"](48, 48, 64, 0.1, 6))
