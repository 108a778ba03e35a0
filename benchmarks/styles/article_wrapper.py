"""The taste of the tutorial article: one causal head with `W_query, W_key, W_value`, several in a `ModuleList`."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    """One head: every token looks at itself and at the tokens before it."""

    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.d_out = d_out
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)

        attn_scores = queries @ keys.transpose(1, 2)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)

        context_vec = attn_weights @ values
        return context_vec


class MultiHeadAttentionWrapper(nn.Module):
    """Several causal heads, one after the other, their context vectors side by side."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads = nn.ModuleList(
            [CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) for _ in range(num_heads)]
        )

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


if __name__ == "__main__":
    torch.manual_seed(123)
    batch = torch.rand(2, 6, 3)
    mha = MultiHeadAttentionWrapper(3, 2, context_length=6, dropout=0.0, num_heads=2)
    print(mha(batch).shape)
'''

NAME: str | None = "MultiHeadAttentionWrapper"
OPTIONS: list[str] = [
    "--causal",
    "--init",
    '{"d_in": 48, "d_out": 8, "context_length": 512, "dropout": 0.1, "num_heads": 6}',
]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "dropout_p": 0.1,
    "out_proj": False,
}

FILL = "attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)"
SOFTMAX = "attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)"
HIDDEN = "self.mask.bool()[:num_tokens, :num_tokens]"
CAT = "torch.cat([head(x) for head in self.heads], dim=-1)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("values = self.W_value(x)", "values = self.W_key(x)")],
    "key-value-swapped": [
        ("keys = self.W_key(x)", "keys = self.W_value(x)"),
        ("values = self.W_value(x)", "values = self.W_key(x)"),
    ],
    "heads-merged-by-view": [
        (CAT, "torch.stack([head(x) for head in self.heads], dim=1).reshape(x.shape[0], x.shape[1], -1)"),
    ],
    "scores-transposed": [("queries @ keys.transpose(1, 2)", "keys @ queries.transpose(1, 2)")],
    "scale-missing": [("attn_scores / keys.shape[-1] ** 0.5", "attn_scores")],
    "scale-by-model-width": [("keys.shape[-1] ** 0.5", "d_in ** 0.5")],
    "scale-inverted": [("/ keys.shape[-1] ** 0.5", "* keys.shape[-1] ** 0.5")],
    "scale-twice": [("keys.shape[-1] ** 0.5", "keys.shape[-1]")],
    "scale-after-softmax": [
        (SOFTMAX, "attn_weights = torch.softmax(attn_scores, dim=-1) / keys.shape[-1] ** 0.5"),
    ],
    "scale-other-constant": [("keys.shape[-1] ** 0.5", "keys.shape[1] ** 0.5")],
    "causal-missing": [(FILL, "")],
    "causal-strict": [("diagonal=1", "diagonal=0")],
    "causal-one-ahead": [("diagonal=1", "diagonal=2")],
    "causal-inverted": [
        (
            "torch.triu(torch.ones(context_length, context_length), diagonal=1)",
            "torch.tril(torch.ones(context_length, context_length), diagonal=-1)",
        )
    ],
    "mask-added-as-number": [(FILL, f"attn_scores += {HIDDEN}.logical_not() * keys.shape[-1] ** 0.5")],
    "masked-scores-zeroed": [("-torch.inf)", "1e-9)")],
    "mask-after-softmax": [(FILL, ""), (SOFTMAX, SOFTMAX + f"\n        attn_weights = attn_weights * ~{HIDDEN}")],
    "mask-fill-too-small": [("-torch.inf)", "-10)")],
    "softmax-over-queries": [("0.5, dim=-1)", "0.5, dim=1)")],
    "softmax-over-heads-or-batch": [("0.5, dim=-1)", "0.5, dim=0)"), ("-torch.inf)", "-1e9)")],
    "softmax-low-precision": [
        (SOFTMAX, "attn_weights = torch.softmax((attn_scores / keys.shape[-1] ** 0.5).half(), dim=-1).to(x.dtype)"),
    ],
    "weights-times-key": [("attn_weights @ values", "attn_weights @ keys")],
    "dropout-in-eval": [("self.dropout(attn_weights)", "nn.Dropout(self.dropout.p)(attn_weights)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "projection-shared-by-heads: head 0 for all": [("head(x) for head", "self.heads[0](x) for head")],
    "causal-missing: out of place fill is lost": [("attn_scores.masked_fill_(", "attn_scores.masked_fill(")],
    "causal-inverted: mask negated": [("self.mask.bool()[", "~self.mask.bool()[")],
    "mask-after-softmax: softmax first, then the buffer": [
        (FILL, ""),
        (
            "context_vec = attn_weights @ values",
            f"attn_weights = attn_weights.masked_fill({HIDDEN}, 0.0)\n        context_vec = attn_weights @ values",
        ),
    ],
    "scale-other-constant: a literal": [("keys.shape[-1] ** 0.5", "10.0")],
}
PAIRS = pairs(
    FAULTS,
    ("value-is-key", "scale-missing"),
    ("causal-one-ahead", "heads-merged-by-view"),
    ("masked-scores-zeroed", "scale-by-model-width"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("-torch.inf)", "-1e5)")],
    "divided before masking": [
        ("queries @ keys.transpose(1, 2)", "queries @ keys.transpose(1, 2) / self.d_out ** 0.5"),
        ("attn_scores / keys.shape[-1] ** 0.5", "attn_scores"),
    ],
    "the article's renormalisation": [
        (FILL, ""),
        (
            SOFTMAX,
            SOFTMAX + f"\n        attn_weights = attn_weights * ~{HIDDEN}\n        "
            "attn_weights = attn_weights / attn_weights.sum(dim=-1, keepdim=True)",
        ),
    ],
    "softmax over axis 1, keys first": [
        ("queries @ keys.transpose(1, 2)", "keys @ queries.transpose(1, 2)"),
        (FILL, "attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens].T, -torch.inf)"),
        ("0.5, dim=-1)", "0.5, dim=1)"),
        ("attn_weights @ values", "attn_weights.transpose(1, 2) @ values"),
    ],
    "float32 softmax": [
        (SOFTMAX, "attn_weights = torch.softmax(attn_scores / self.d_out ** 0.5, -1, dtype=torch.float32).to(x.dtype)"),
    ],
    "stacked heads": [(CAT, "torch.stack([head(x) for head in self.heads], dim=2).flatten(2)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs of six heads of width 8 on two batches."""
    return module_outputs(namespace["MultiHeadAttentionWrapper"](48, 8, 64, 0.1, 6))
