"""The taste of a text-to-text library: `q, k, v, o`, heads narrower than the model, no scale, a bias table at will."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import torch
from torch import nn


class UnscaledAttention(nn.Module):
    """Encoder attention in the manner of T5: no 1/sqrt(d_kv), the initialisation keeps the scores small."""

    def __init__(self, d_model=48, d_kv=8, num_heads=5, dropout_rate=0.1, relative_attention_max_distance=None):
        super().__init__()
        self.d_model = d_model
        self.key_value_proj_dim = d_kv
        self.n_heads = num_heads
        self.inner_dim = num_heads * d_kv
        self.max_distance = relative_attention_max_distance
        self.dropout = dropout_rate

        self.q = nn.Linear(d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, d_model, bias=False)
        if self.max_distance is not None:
            self.relative_attention_bias = nn.Embedding(2 * self.max_distance + 1, num_heads)

    def compute_bias(self, length, device):
        place = torch.arange(length, device=device)
        relative = (place[None, :] - place[:, None]).clamp(-self.max_distance, self.max_distance)
        return self.relative_attention_bias(relative + self.max_distance).permute(2, 0, 1)[None]

    def forward(self, hidden_states, mask=None):
        """mask: (batch, tokens), 1 at tokens, 0 at padding"""
        batch_size, seq_length, _ = hidden_states.shape

        def shape(states):
            return states.view(batch_size, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)

        query_states = shape(self.q(hidden_states))
        key_states = shape(self.k(hidden_states))
        value_states = shape(self.v(hidden_states))

        scores = torch.matmul(query_states, key_states.transpose(3, 2))
        if self.max_distance is not None:
            scores = scores + self.compute_bias(seq_length, scores.device)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)

        attn_weights = nn.functional.softmax(scores, dim=-1)
        attn_weights = nn.functional.dropout(attn_weights, p=self.dropout, training=self.training)

        attn_output = torch.matmul(attn_weights, value_states)
        attn_output = attn_output.transpose(1, 2).contiguous().view(batch_size, -1, self.inner_dim)
        return self.o(attn_output)
'''

NAME: str | None = "UnscaledAttention"
OPTIONS: list[str] = ["--scale", "1", "--mask-argument", "keep"]
SPEC: dict[str, Any] = {"num_heads": 5, "head_dim": 8, "embed_dim": 48, "scale": 1.0, "dropout_p": 0.1}

SCORES = "scores = torch.matmul(query_states, key_states.transpose(3, 2))"
FILL = "scores = scores.masked_fill(mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)"
SOFTMAX = "nn.functional.softmax(scores, dim=-1)"
SHAPE = "return states.view(batch_size, -1, self.n_heads, self.key_value_proj_dim).transpose(1, 2)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.v(hidden_states)", "self.k(hidden_states)")],
    "key-value-swapped": [
        ("key_states = shape(self.k", "key_states = shape(self.v"),
        ("value_states = shape(self.v", "value_states = shape(self.k"),
    ],
    "heads-split-by-view": [(SHAPE, "return states.view(batch_size, self.n_heads, -1, self.key_value_proj_dim)")],
    "strided-read-as-contiguous": [
        (
            "value_states = shape(self.v(hidden_states))",
            "value_states = self.v(hidden_states).view(batch_size, self.n_heads, -1, self.key_value_proj_dim)",
        ),
    ],
    "heads-merged-by-view": [("attn_output.transpose(1, 2).contiguous()", "attn_output.contiguous()")],
    "scores-transposed": [(SCORES, "scores = torch.matmul(key_states, query_states.transpose(3, 2))")],
    "scale-other-constant": [(SCORES, SCORES + " / self.key_value_proj_dim**0.5")],
    "scale-by-model-width": [(SCORES, SCORES + " / self.d_model**0.5")],
    "mask-added-as-number": [(FILL, "scores = scores + mask[:, None, None, :]")],
    "masked-scores-zeroed": [("torch.finfo(scores.dtype).min", "0.0")],
    "mask-after-softmax": [
        (FILL, "pass"),
        (
            SOFTMAX,
            SOFTMAX + "\n        if mask is not None:\n            attn_weights = attn_weights "
            "* mask[:, None, None, :]",
        ),
    ],
    "mask-fill-too-small": [("torch.finfo(scores.dtype).min", "-5.0")],
    "padding-missing": [(FILL, "pass")],
    "padding-on-queries": [("mask[:, None, None, :] == 0", "mask[:, None, :, None] == 0")],
    "padding-wrong-side": [("mask[:, None, None, :] == 0", "mask[:, None, None, :] != 0")],
    "softmax-over-queries": [("softmax(scores, dim=-1)", "softmax(scores, dim=-2)")],
    "softmax-over-heads-or-batch": [("softmax(scores, dim=-1)", "softmax(scores, dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "nn.functional.softmax(scores.half(), dim=-1).type_as(scores)")],
    "weights-times-key": [("torch.matmul(attn_weights, value_states)", "torch.matmul(attn_weights, key_states)")],
    "dropout-in-eval": [(", training=self.training", "")],
    "attends-over-batch": [
        (
            "        batch_size, seq_length, _ = hidden_states.shape",
            "        hidden_states = hidden_states.transpose(0, 1)\n"
            "        batch_size, seq_length, _ = hidden_states.shape",
        ),
        ("mask[:, None, None, :] == 0", "mask.T[:, None, None, :] == 0"),
        ("return self.o(attn_output)", "return self.o(attn_output).transpose(0, 1)"),
    ],
}
MORE_FAULTS: dict[str, Edits] = {
    "scale-other-constant: the usual scale on the query": [
        ("shape(self.q(hidden_states))", "shape(self.q(hidden_states)) * self.key_value_proj_dim**-0.5"),
    ],
    "mask-of-other-sequence: batch reversed": [("mask[:, None, None, :] == 0", "mask.flip(0)[:, None, None, :] == 0")],
    "padding-wrong-side: flipped": [("mask[:, None, None, :] == 0", "mask.flip(1)[:, None, None, :] == 0")],
    "mask-fill-too-small: -2": [("torch.finfo(scores.dtype).min", "-2.0")],
}
PAIRS = pairs(
    FAULTS,
    ("scale-other-constant", "padding-missing"),
    ("heads-merged-by-view", "value-is-key"),
    ("softmax-over-queries", "key-value-swapped"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e9": [("torch.finfo(scores.dtype).min", "-1e9")],
    "additive mask": [(FILL, "scores = scores + (1.0 - mask[:, None, None, :].to(scores.dtype)) * -1e4")],
    "sdpa of scale 1": [
        (
            "        attn_output = torch.matmul(attn_weights, value_states)\n",
            "        keep = None if mask is None else mask[:, None, None, :].bool()\n"
            "        attn_output = nn.functional.scaled_dot_product_attention(\n"
            "            query_states, key_states, value_states, attn_mask=keep, scale=1.0\n        )\n",
        ),
    ],
    "einsum": [(SCORES, 'scores = torch.einsum("bnqd,bnkd->bnqk", query_states, key_states)')],
    "float32 softmax": [(SOFTMAX, "nn.functional.softmax(scores.float(), dim=-1).type_as(scores)")],
    "reshape": [("transpose(1, 2).contiguous().view(batch_size, -1, self.inner_dim)", "transpose(1, 2).flatten(2)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs without a mask, with right and with left padding and on large scores."""
    module = randomised(namespace["UnscaledAttention"](), spread=0.15)
    outputs = []
    with torch.no_grad():
        for padded, size in ((slice(0, 0), 1.0), (slice(6, None), 1.0), (slice(None, 4), 1.0), (slice(5, None), 8.0)):
            mask = torch.ones(3, 9, dtype=torch.long)
            mask[0, padded] = 0
            outputs.append(module(normal(3, 9, 48, seed=1, size=size), mask))
        outputs.append(module(normal(2, 7, 48, seed=2)))
    return outputs
