"""The taste of a sequence toolkit: time-first tensors `(T, B, C)`, batch and heads folded into one axis, `bmm`."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import torch
import torch.nn.functional as F
from torch import nn


class MultiheadAttention(nn.Module):
    """Self-attention on (time, batch, channel)."""

    batch_first = False

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x, key_padding_mask=None):
        """x: time x batch x channel; key_padding_mask: batch x time, True at padding"""
        tgt_len, bsz, embed_dim = x.size()
        q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q = q * self.scaling

        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        src_len = k.size(1)

        attn_weights = torch.bmm(q, k.transpose(1, 2))
        if key_padding_mask is not None:
            attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
            attn_weights = attn_weights.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf"))
            attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, src_len)
        attn_probs = F.softmax(attn_weights, dim=-1)
        attn_probs = F.dropout(attn_probs, p=self.dropout, training=self.training)

        attn = torch.bmm(attn_probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn)
'''

NAME: str | None = "MultiheadAttention"
OPTIONS: list[str] = ["--init", '{"embed_dim": 48, "num_heads": 6}', "--mask-argument", "hide"]
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "dropout_p": 0.1, "projection_bias": True}

SCALE = "q = q * self.scaling"
FILL = 'attn_weights = attn_weights.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), float("-inf"))'
BMM = "attn_weights = torch.bmm(q, k.transpose(1, 2))"
SOFTMAX = "attn_probs = F.softmax(attn_weights, dim=-1)"
MERGE = "attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)"
HIDDEN = "key_padding_mask.unsqueeze(1).unsqueeze(2)"
LINEAR = "F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [
        ("q, k, v = F.linear", "q, k, _ = F.linear"),
        ("        q = q * self", "        v = k\n        q = q * self"),
    ],
    "key-value-swapped": [("q, k, v = F.linear", "q, v, k = F.linear")],
    "projection-transposed": [("self.out_proj(attn)", "attn @ self.out_proj.weight + self.out_proj.bias")],
    "fused-qkv-layout": [
        (
            LINEAR,
            "F.linear(x, self.in_proj_weight, self.in_proj_bias).view(\n"
            "            tgt_len, bsz, self.num_heads, -1).chunk(3, dim=-1)",
        ),
    ],
    "attends-over-batch": [
        (
            "        tgt_len, bsz, embed_dim = x.size()",
            "        x = x.transpose(0, 1)\n        key_padding_mask = None\n"
            "        tgt_len, bsz, embed_dim = x.size()",
        ),
        ("return self.out_proj(attn)", "return self.out_proj(attn).transpose(0, 1)"),
    ],
    "heads-merged-by-view": [
        (MERGE, "attn.view(bsz, self.num_heads, tgt_len, -1).reshape(bsz, tgt_len, embed_dim).transpose(0, 1)"),
    ],
    "scores-transposed": [(BMM, "attn_weights = torch.bmm(k, q.transpose(1, 2))")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("self.head_dim**-0.5", "embed_dim**-0.5")],
    "scale-inverted": [("self.head_dim**-0.5", "self.head_dim**0.5")],
    "scale-twice": [(BMM, BMM + " * self.scaling")],
    "scale-after-softmax": [(SCALE, ""), (SOFTMAX, SOFTMAX + " * self.scaling")],
    "scale-other-constant": [("self.head_dim**-0.5", "num_heads**-0.5")],
    "mask-added-as-number": [(FILL, f"attn_weights = attn_weights + (~{HIDDEN}).to(attn_weights.dtype)")],
    "masked-scores-zeroed": [('float("-inf")', "0.0")],
    "mask-fill-too-small": [('float("-inf")', "-8.0")],
    "mask-after-softmax": [
        (FILL, "pass"),
        (
            SOFTMAX,
            SOFTMAX + "\n        if key_padding_mask is not None:\n"
            "            keep = (~key_padding_mask)[:, None, None, :]\n            attn_probs = (attn_probs.view("
            "bsz, self.num_heads, tgt_len, src_len) * keep).view_as(attn_weights)",
        ),
    ],
    "padding-missing": [(FILL, "pass")],
    "padding-on-queries": [(HIDDEN, "key_padding_mask.unsqueeze(1).unsqueeze(3)"), ('float("-inf")', "-1e9")],
    "padding-wrong-side": [(HIDDEN, "~" + HIDDEN), ('float("-inf")', "-1e9")],
    "softmax-over-queries": [("F.softmax(attn_weights, dim=-1)", "F.softmax(attn_weights, dim=1).nan_to_num()")],
    "softmax-low-precision": [(SOFTMAX, "attn_probs = F.softmax(attn_weights.bfloat16(), dim=-1).type_as(v)")],
    "weights-times-key": [("torch.bmm(attn_probs, v)", "torch.bmm(attn_probs, k)")],
    "dropout-in-eval": [(", training=self.training", "")],
    "output-projection-missing": [("return self.out_proj(attn)", "return attn")],
    "bias-term": [(LINEAR, LINEAR.replace(", self.in_proj_bias", ""))],
}
MORE_FAULTS: dict[str, Edits] = {
    "mask-of-other-sequence: fold the other way": [
        (
            FILL,
            "attn_weights = attn_weights.masked_fill("
            'key_padding_mask.repeat(self.num_heads, 1).view(bsz, self.num_heads, 1, src_len), float("-inf"))',
        ),
    ],
    "padding-wrong-side: wrong end": [(HIDDEN, "key_padding_mask.flip(1).unsqueeze(1).unsqueeze(2)")],
    "bias-term: output": [("self.out_proj(attn)", "F.linear(attn, self.out_proj.weight)")],
}
PAIRS = pairs(
    FAULTS,
    ("padding-missing", "fused-qkv-layout"),
    ("scale-by-model-width", "value-is-key"),
    ("scale-missing", "output-projection-missing"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [('float("-inf")', "-1e4")],
    "scale on the scores": [(SCALE, ""), (BMM, BMM + " * self.scaling")],
    "batch first inside": [
        ("attn = torch.bmm(attn_probs, v)", "attn = torch.einsum('nqk,nkd->nqd', attn_probs, v)"),
    ],
    "softmax over axis 1, keys first": [
        (BMM, "attn_weights = torch.bmm(k, q.transpose(1, 2))"),
        (HIDDEN, "key_padding_mask.unsqueeze(1).unsqueeze(3)"),
        ("F.softmax(attn_weights, dim=-1)", "F.softmax(attn_weights, dim=1)"),
        ("torch.bmm(attn_probs, v)", "torch.bmm(attn_probs.transpose(1, 2), v)"),
    ],
    "float32 softmax": [(SOFTMAX, "attn_probs = F.softmax(attn_weights.float(), dim=-1).type_as(v)")],
    "reshape": [(MERGE, "attn.transpose(0, 1).reshape(tgt_len, bsz, embed_dim)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs without padding, with right and with left padding."""
    module = randomised(namespace["MultiheadAttention"](48, 6))
    x = normal(9, 3, 48, seed=1)
    outputs = [module(x)]
    for padded in (slice(6, None), slice(None, 4)):
        hidden = torch.zeros(3, 9, dtype=torch.bool)
        hidden[0, padded] = True
        outputs.append(module(x, hidden))
    return outputs
