"""The taste of a multimodal decoder: mask functions combined by `and` and `or`, so that a prefix sees itself whole."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import math

import torch
from torch import nn

PREFIX = 3
WINDOW = 5


def causal(q_idx, kv_idx):
    return kv_idx <= q_idx


def sliding_window(q_idx, kv_idx):
    return q_idx - kv_idx < WINDOW


def prefix(q_idx, kv_idx):
    return kv_idx < PREFIX


def mask_mod(q_idx, kv_idx):
    """The first tokens (an image) are seen by all; otherwise a causal window."""
    return causal(q_idx, kv_idx) & sliding_window(q_idx, kv_idx) | prefix(q_idx, kv_idx)


class PrefixAttention(nn.Module):
    def __init__(self, dim=48, n_heads=6):
        super().__init__()
        self.n_heads = n_heads
        self.head_dim = dim // n_heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.wqkv(x).view(batch, length, 3, self.n_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        index = torch.arange(length, device=x.device)
        mask = mask_mod(index[:, None], index[None, :])
        scores = q @ k.mT / math.sqrt(self.head_dim)
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
        attn = scores.softmax(dim=-1)
        out = (attn @ v).transpose(1, 2).flatten(2)
        return self.wo(out)
'''

NAME: str | None = None
OPTIONS: list[str] = ["--mask", "causal & window(5) | prefix(3)"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "window": 5,
    "prefix": 3,
}

FILL = "scores = scores.masked_fill(mask.logical_not(), -math.inf)"
SOFTMAX = "attn = scores.softmax(dim=-1)"
RULE = "return causal(q_idx, kv_idx) & sliding_window(q_idx, kv_idx) | prefix(q_idx, kv_idx)"
QKV = "self.wqkv(x).view(batch, length, 3, self.n_heads, self.head_dim).permute(2, 0, 3, 1, 4)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("        index = torch.arange(length", "        v = k\n        index = torch.arange(length")],
    "key-value-swapped": [("q, k, v = self.wqkv", "q, v, k = self.wqkv")],
    "projection-transposed": [("self.wo(out)", "out @ self.wo.weight")],
    "fused-qkv-layout": [
        (QKV, "self.wqkv(x).view(batch, length, self.n_heads, 3, self.head_dim).permute(3, 0, 2, 1, 4)")
    ],
    "heads-merged-by-view": [("(attn @ v).transpose(1, 2).flatten(2)", "(attn @ v).reshape(batch, length, dim)")],
    "strided-read-as-contiguous": [
        ("(attn @ v)", "(attn @ v.transpose(1, 2).reshape(batch, self.n_heads, length, self.head_dim))"),
    ],
    "scores-transposed": [("q @ k.mT", "k @ q.mT")],
    "scale-missing": [(" / math.sqrt(self.head_dim)", "")],
    "scale-by-model-width": [("math.sqrt(self.head_dim)", "math.sqrt(dim)")],
    "scale-inverted": [("/ math.sqrt(self.head_dim)", "* math.sqrt(self.head_dim)")],
    "scale-twice": [("math.sqrt(self.head_dim)", "self.head_dim")],
    "scale-after-softmax": [(" / math.sqrt(self.head_dim)", ""), (SOFTMAX, SOFTMAX + " / math.sqrt(self.head_dim)")],
    "scale-other-constant": [("math.sqrt(self.head_dim)", "math.sqrt(self.n_heads)")],
    "causal-missing": [(RULE, RULE.replace("causal(q_idx, kv_idx) & ", ""))],
    "causal-one-ahead": [("return kv_idx <= q_idx", "return kv_idx <= q_idx + 1")],
    "causal-strict": [("return kv_idx <= q_idx", "return kv_idx < q_idx")],
    "window-off-by-one": [("q_idx - kv_idx < WINDOW", "q_idx - kv_idx <= WINDOW")],
    "window-missing": [(RULE, RULE.replace(" & sliding_window(q_idx, kv_idx)", ""))],
    "prefix-block-missing": [(RULE, RULE.replace(" | prefix(q_idx, kv_idx)", ""))],
    "mask-order": [(RULE, "return causal(q_idx, kv_idx) & (sliding_window(q_idx, kv_idx) | prefix(q_idx, kv_idx))")],
    "mask-added-as-number": [(FILL, "scores = scores + mask")],
    "masked-scores-zeroed": [("-math.inf", "0.0")],
    "mask-after-softmax": [(FILL, ""), (SOFTMAX, SOFTMAX + " * mask")],
    "mask-fill-too-small": [("-math.inf", "-3 * math.e")],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2)")],
    "softmax-over-heads-or-batch": [("-math.inf", "-1e9"), ("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "attn = scores.half().softmax(dim=-1).to(x.dtype)")],
    "weights-times-key": [("(attn @ v)", "(attn @ k)")],
    "output-projection-missing": [("self.wo(out)", "out")],
}
MORE_FAULTS: dict[str, Edits] = {
    "window-off-by-one: one too few": [("q_idx - kv_idx < WINDOW", "q_idx - kv_idx < WINDOW - 1")],
    "mask-order: last call wins": [
        (RULE, "mask = causal(q_idx, kv_idx) | prefix(q_idx, kv_idx)\n    return mask & sliding_window(q_idx, kv_idx)")
    ],
}
PAIRS = pairs(
    FAULTS,
    ("window-off-by-one", "scale-missing"),
    ("causal-one-ahead", "fused-qkv-layout"),
    ("prefix-block-missing", "key-value-swapped"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("-math.inf", "-1e4")],
    "or first": [(RULE, "return prefix(q_idx, kv_idx) | (sliding_window(q_idx, kv_idx) & causal(q_idx, kv_idx))")],
    "de Morgan": [(RULE, "return ~(~prefix(q_idx, kv_idx) & (kv_idx.gt(q_idx) | ~sliding_window(q_idx, kv_idx)))")],
    "scale on the query": [("q @ k.mT / math.sqrt(self.head_dim)", "(q / math.sqrt(self.head_dim)) @ k.mT")],
    "sdpa": [(SOFTMAX, ""), ("(attn @ v)", "nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)")],
    "float32 softmax": [(SOFTMAX, "attn = scores.float().softmax(dim=-1).to(x.dtype)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches longer than prefix and window together."""
    return module_outputs(namespace["PrefixAttention"]())
