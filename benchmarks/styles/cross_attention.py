"""The taste of a translation model: queries from the decoder, keys and values from a memory, True hides padding."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import torch
from torch import nn


class CrossAttention(nn.Module):
    """Every token of x looks at all tokens of the memory."""

    def __init__(self, embed_dim=48, num_heads=6, bias=True):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def _shape(self, tensor, length, batch):
        return tensor.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2).contiguous()

    def forward(self, x, memory, memory_key_padding_mask=None):
        """x: (batch, target, embed_dim), memory: (batch, source, embed_dim), mask: (batch, source), True at padding"""
        batch, tgt_len, _ = x.shape
        src_len = memory.shape[1]

        query_states = self._shape(self.q_proj(x) * self.scaling, tgt_len, batch)
        key_states = self._shape(self.k_proj(memory), src_len, batch)
        value_states = self._shape(self.v_proj(memory), src_len, batch)

        flat = (batch * self.num_heads, -1, self.head_dim)
        attn_weights = torch.bmm(query_states.view(flat), key_states.view(flat).transpose(1, 2))
        attn_weights = attn_weights.view(batch, self.num_heads, tgt_len, src_len)
        if memory_key_padding_mask is not None:
            hidden = memory_key_padding_mask[:, None, None, :]
            attn_weights = attn_weights.masked_fill(hidden, float("-inf"))
        attn_weights = attn_weights.softmax(dim=-1)

        attn_output = torch.bmm(attn_weights.view(batch * self.num_heads, tgt_len, src_len), value_states.view(flat))
        attn_output = attn_output.view(batch, self.num_heads, tgt_len, self.head_dim)
        attn_output = attn_output.transpose(1, 2).reshape(batch, tgt_len, self.embed_dim)
        return self.out_proj(attn_output)
'''

NAME: str | None = None
OPTIONS: list[str] = ["--mask-argument", "hide"]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "projection_bias": True}

FILL = 'attn_weights = attn_weights.masked_fill(hidden, float("-inf"))'
SOFTMAX = "attn_weights = attn_weights.softmax(dim=-1)"
SHAPE = "tensor.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2).contiguous()"
MERGE = "attn_output.transpose(1, 2).reshape(batch, tgt_len, self.embed_dim)"
SCALED = "self.q_proj(x) * self.scaling"
VALUES = "self._shape(self.v_proj(memory), src_len, batch)"
SCORED = "attn_weights = attn_weights.view(batch, self.num_heads, tgt_len, src_len)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("self.v_proj(memory)", "self.k_proj(memory)")],
    "key-value-swapped": [
        ("key_states = self._shape(self.k_proj", "key_states = self._shape(self.v_proj"),
        ("value_states = self._shape(self.v_proj", "value_states = self._shape(self.k_proj"),
    ],
    "projection-transposed": [("self.k_proj(memory)", "memory @ self.k_proj.weight + self.k_proj.bias")],
    "heads-split-by-view": [(SHAPE, "tensor.view(batch, self.num_heads, length, self.head_dim)")],
    "strided-read-as-contiguous": [
        (VALUES, "self.v_proj(memory).view(batch, self.num_heads, src_len, self.head_dim)"),
    ],
    "heads-merged-by-view": [(MERGE, "attn_output.reshape(batch, tgt_len, self.embed_dim)")],
    "scale-missing": [(SCALED, "self.q_proj(x)")],
    "scale-by-model-width": [("self.head_dim**-0.5", "self.embed_dim**-0.5")],
    "scale-inverted": [("self.head_dim**-0.5", "self.head_dim**0.5")],
    "scale-twice": [(SCORED, SCORED + " * self.scaling")],
    "scale-after-softmax": [(SCALED, "self.q_proj(x)"), (SOFTMAX, SOFTMAX + " * self.scaling")],
    "scale-other-constant": [("self.head_dim**-0.5", "self.num_heads**-0.5")],
    "prefix-block-missing": [
        (
            SCORED,
            SCORED + "\n        causal = torch.ones(tgt_len, src_len, dtype=torch.bool).triu(1)\n"
            "        attn_weights = attn_weights.masked_fill(causal, -1e9)",
        ),
    ],
    "mask-added-as-number": [(FILL, "attn_weights = attn_weights + ~hidden")],
    "masked-scores-zeroed": [('float("-inf")', "0")],
    "mask-after-softmax": [
        (FILL, "pass"),
        (
            SOFTMAX,
            SOFTMAX + "\n        if memory_key_padding_mask is not None:\n"
            "            attn_weights = attn_weights.masked_fill(hidden, 0.0)",
        ),
    ],
    "mask-fill-too-small": [('float("-inf")', "-10.0")],
    "padding-missing": [
        ("if memory_key_padding_mask is not None:", "if memory_key_padding_mask is not None and self.training:")
    ],
    "padding-wrong-side": [
        ("memory_key_padding_mask[:, None, None, :]", "~memory_key_padding_mask[:, None, None, :]"),
        ('float("-inf")', "-1e9"),
    ],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2).nan_to_num()")],
    "softmax-over-heads-or-batch": [('float("-inf")', "-1e9"), ("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "attn_weights = attn_weights.half().softmax(dim=-1).to(x.dtype)")],
    "weights-times-key": [("src_len), value_states.view(flat))", "src_len), key_states.view(flat))")],
    "output-projection-missing": [("return self.out_proj(attn_output)", "return attn_output")],
    "bias-term": [("self.q_proj(x)", "nn.functional.linear(x, self.q_proj.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "mask-of-other-sequence: repeated in the wrong order": [
        (
            "memory_key_padding_mask[:, None, None, :]",
            "memory_key_padding_mask.repeat(self.num_heads, 1).view(batch, self.num_heads, 1, src_len)",
        ),
    ],
    "padding-wrong-side: from the right": [
        ("memory_key_padding_mask[:, None, None, :]", "memory_key_padding_mask.flip(1)[:, None, None, :]"),
    ],
    "projection-transposed: output": [
        ("self.out_proj(attn_output)", "attn_output @ self.out_proj.weight + self.out_proj.bias"),
    ],
    "bias-term: output": [("self.out_proj(attn_output)", "attn_output @ self.out_proj.weight.T")],
    "padding-missing: fill is lost": [
        ("attn_weights = attn_weights.masked_fill(hidden,", "attn_weights.masked_fill(hidden,")
    ],
}
PAIRS = pairs(
    FAULTS,
    ("scale-missing", "heads-merged-by-view"),
    ("padding-missing", "value-is-key"),
    ("scale-by-model-width", "bias-term"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [('float("-inf")', "-1e4")],
    "scale on the scores": [(SCALED, "self.q_proj(x)"), (SCORED, SCORED + " * self.scaling")],
    "fourth root on both": [
        (SCALED, "self.q_proj(x) * self.head_dim**-0.25"),
        ("self.k_proj(memory)", "self.k_proj(memory) * self.head_dim**-0.25"),
    ],
    "additive mask": [(FILL, "attn_weights = attn_weights + hidden.to(x.dtype) * torch.finfo(torch.float32).min")],
    "float32 softmax": [(SOFTMAX, "attn_weights = attn_weights.float().softmax(dim=-1).to(x.dtype)")],
    "permute": [(MERGE, "attn_output.permute(0, 2, 1, 3).flatten(2)")],
    "sdpa": [
        (
            SOFTMAX,
            "keep = None if memory_key_padding_mask is None else ~memory_key_padding_mask[:, None, None, :]\n"
            "        attn_output = nn.functional.scaled_dot_product_attention(\n"
            "            query_states, key_states, value_states, attn_mask=keep, scale=1.0\n        )",
        ),
        (
            "        attn_output = torch.bmm(attn_weights.view(batch * self.num_heads, tgt_len, src_len), "
            "value_states.view(flat))\n",
            "",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs for targets shorter and longer than the memory, without and with padding."""
    module = randomised(namespace["CrossAttention"]())
    outputs = []
    with torch.no_grad():
        for tgt_len, src_len in ((5, 9), (9, 4)):
            x, memory = normal(3, tgt_len, 48, seed=tgt_len), normal(3, src_len, 48, seed=src_len + 20)
            hidden = torch.zeros(3, src_len, dtype=torch.bool)
            hidden[0, src_len - 2 :] = True
            hidden[2, :1] = True
            outputs += [module(x, memory), module(x, memory, hidden)]
    return outputs
