"""The taste of an encoder library: `query, key, value` Linear layers, a 0/1 padding mask made additive."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import math

import torch
from torch import nn


class EncoderSelfAttention(nn.Module):
    """Bidirectional self-attention of an encoder; attention_mask (batch, tokens) is 1 at words and 0 at padding."""

    def __init__(self, hidden_size=48, num_attention_heads=6, attention_probs_dropout_prob=0.1):
        super().__init__()
        if hidden_size % num_attention_heads != 0:
            raise ValueError("hidden_size must be a multiple of num_attention_heads")
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = hidden_size // num_attention_heads
        self.all_head_size = self.num_attention_heads * self.attention_head_size

        self.query = nn.Linear(hidden_size, self.all_head_size)
        self.key = nn.Linear(hidden_size, self.all_head_size)
        self.value = nn.Linear(hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(attention_probs_dropout_prob)
        self.dense = nn.Linear(self.all_head_size, hidden_size)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(new_shape).permute(0, 2, 1, 3)

    def get_extended_attention_mask(self, attention_mask, dtype):
        extended = attention_mask[:, None, None, :].to(dtype)
        return (1.0 - extended) * -10000.0

    def forward(self, hidden_states, attention_mask=None):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))

        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            attention_scores = attention_scores + self.get_extended_attention_mask(attention_mask, hidden_states.dtype)

        attention_probs = nn.functional.softmax(attention_scores, dim=-1)
        attention_probs = self.dropout(attention_probs)

        context_layer = torch.matmul(attention_probs, value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
        context_layer = context_layer.view(context_layer.size()[:-2] + (self.all_head_size,))
        return self.dense(context_layer)
'''

NAME: str | None = None
OPTIONS: list[str] = ["--mask-argument", "keep"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "dropout_p": 0.1,
    "projection_bias": True,
}

SCALE = "attention_scores = attention_scores / math.sqrt(self.attention_head_size)"
ADD = (
    "            attention_scores = attention_scores "
    "+ self.get_extended_attention_mask(attention_mask, hidden_states.dtype)\n"
)
EXTENDED = "return (1.0 - extended) * -10000.0"
SOFTMAX = "nn.functional.softmax(attention_scores, dim=-1)"
SPLIT = "return x.view(new_shape).permute(0, 2, 1, 3)"
MERGE = "context_layer.permute(0, 2, 1, 3).contiguous()"
KEEP = "attention_mask[:, None, None, :]"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.value(hidden_states)", "self.key(hidden_states)")],
    "key-value-swapped": [
        ("key_layer = self.transpose_for_scores(self.key", "key_layer = self.transpose_for_scores(self.value"),
        ("value_layer = self.transpose_for_scores(self.value", "value_layer = self.transpose_for_scores(self.key"),
    ],
    "projection-transposed": [("self.query(hidden_states)", "hidden_states @ self.query.weight + self.query.bias")],
    "heads-split-by-view": [
        (SPLIT, "return x.view(x.size(0), self.num_attention_heads, x.size(1), self.attention_head_size)"),
    ],
    "heads-merged-by-view": [
        (MERGE, "context_layer.contiguous()"),
        (
            "context_layer.view(context_layer.size()[:-2] + (self.all_head_size,))",
            "context_layer.view_as(hidden_states)",
        ),
    ],
    "attends-over-batch": [
        (
            "query_layer = self.transpose_for_scores(self.query(hidden_states))",
            "hidden_states = hidden_states.transpose(0, 1)\n"
            "        query_layer = self.transpose_for_scores(self.query(hidden_states))",
        ),
        (KEEP, "attention_mask.T[:, None, None, :]"),
        ("return self.dense(context_layer)", "return self.dense(context_layer).transpose(0, 1)"),
    ],
    "scores-transposed": [
        (
            "torch.matmul(query_layer, key_layer.transpose(-1, -2))",
            "torch.matmul(key_layer, query_layer.transpose(-1, -2))",
        ),
    ],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("math.sqrt(self.attention_head_size)", "math.sqrt(self.all_head_size)")],
    "scale-inverted": [("attention_scores / math.sqrt", "attention_scores * math.sqrt")],
    "scale-twice": [("math.sqrt(self.attention_head_size)", "self.attention_head_size")],
    "scale-after-softmax": [(SCALE, ""), (SOFTMAX, SOFTMAX + " / math.sqrt(self.attention_head_size)")],
    "scale-other-constant": [("math.sqrt(self.attention_head_size)", "math.sqrt(self.num_attention_heads)")],
    "mask-added-as-number": [(EXTENDED, "return extended")],
    "masked-scores-zeroed": [(ADD, f"            attention_scores = attention_scores * {KEEP}\n")],
    "mask-after-softmax": [
        ("        if attention_mask is not None:\n" + ADD, ""),
        (
            SOFTMAX,
            SOFTMAX + f"\n        if attention_mask is not None:\n"
            f"            attention_probs = attention_probs * {KEEP}",
        ),
    ],
    "mask-fill-too-small": [("-10000.0", "-5.0")],
    "padding-missing": [("if attention_mask is not None:", "if attention_mask is not None and self.training:")],
    "padding-on-queries": [
        (
            ADD,
            "            padded = attention_mask[:, None, :, None] == 0\n"
            "            attention_scores = attention_scores.masked_fill(padded, -10000.0)\n",
        ),
    ],
    "padding-wrong-side": [(EXTENDED, "return extended * -10000.0")],
    "prefix-block-missing": [
        (
            SCALE,
            SCALE + "\n        size = attention_scores.size(-1)\n        attention_scores = attention_scores + "
            "torch.full((size, size), -1e4, dtype=attention_scores.dtype).triu(1)",
        ),
    ],
    "softmax-over-queries": [("attention_scores, dim=-1)", "attention_scores, dim=-2)")],
    "softmax-over-heads-or-batch": [("attention_scores, dim=-1)", "attention_scores, dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "attention_scores.half().softmax(dim=-1).to(value_layer.dtype)")],
    "weights-times-key": [("torch.matmul(attention_probs, value_layer)", "torch.matmul(attention_probs, key_layer)")],
    "dropout-in-eval": [("self.dropout(attention_probs)", "nn.functional.dropout(attention_probs, self.dropout.p)")],
    "output-projection-missing": [("return self.dense(context_layer)", "return context_layer")],
    "bias-term": [("self.dense(context_layer)", "nn.functional.linear(context_layer, self.dense.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "bias-read-as-mask: additive mask as boolean": [
        (
            ADD,
            "            bias = self.get_extended_attention_mask(attention_mask, hidden_states.dtype)\n"
            "            attention_scores = attention_scores.masked_fill(bias == 0, -1e4)\n",
        ),
    ],
    "padding-missing: mask never used": [(ADD, "            pass\n")],
    "padding-wrong-side: flipped": [(KEEP, "attention_mask.flip(1)[:, None, None, :]")],
    "mask-of-other-sequence: first of the batch": [(KEEP, "attention_mask[:1, None, None, :]")],
    "bias-term: value": [("self.value(hidden_states)", "hidden_states @ self.value.weight.T")],
}
PAIRS = pairs(
    FAULTS,
    ("padding-missing", "scale-missing"),
    ("heads-merged-by-view", "padding-on-queries"),
    ("scale-by-model-width", "bias-term"),
    ("key-value-swapped", "mask-added-as-number"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "finfo.min": [("* -10000.0", "* torch.finfo(dtype).min")],
    "masked_fill": [(ADD, f"            attention_scores = attention_scores.masked_fill({KEEP} == 0, -1e9)\n")],
    "mask before the scale": [
        ("        " + SCALE + "\n", ""),
        ("        attention_probs = nn.functional", "        " + SCALE + "\n        attention_probs = nn.functional"),
    ],
    "scale on the query": [
        (
            "self.transpose_for_scores(self.query(hidden_states))",
            "self.transpose_for_scores(self.query(hidden_states)) / math.sqrt(self.attention_head_size)",
        ),
        (SCALE, ""),
    ],
    "float32 softmax": [(SOFTMAX, "nn.functional.softmax(attention_scores.float(), dim=-1).to(value_layer.dtype)")],
    "mask after softmax, renormalised": [
        (ADD, "            pass\n"),
        (
            SOFTMAX,
            SOFTMAX + f"\n        if attention_mask is not None:\n"
            f"            attention_probs = attention_probs * {KEEP}\n"
            "            attention_probs = attention_probs / attention_probs.sum(-1, keepdim=True)",
        ),
    ],
    "reshape": [
        (MERGE, "context_layer.transpose(1, 2)"),
        ("context_layer.view(context_layer.size()[:-2] + (self.all_head_size,))", "context_layer.flatten(2)"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs without a mask, with right and with left padding."""
    module = randomised(namespace["EncoderSelfAttention"]())
    x = normal(3, 9, 48, seed=1)
    outputs = []
    with torch.no_grad():
        outputs.append(module(x))
        for padded in (slice(6, None), slice(None, 4)):
            attention_mask = torch.ones(3, 9, dtype=torch.long)
            attention_mask[0, padded] = 0
            outputs.append(module(x, attention_mask))
    return outputs
