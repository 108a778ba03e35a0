"""The taste of a training pipeline that packs documents: a function of `q, k, v` and the document of each token."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs

SOURCE = '''import torch
import torch.nn.functional as F


def document_causal_mask(segment_ids):
    """(batch, tokens) to (batch, 1, tokens, tokens): True where document and order allow to look."""
    length = segment_ids.shape[1]
    same_document = segment_ids[:, :, None] == segment_ids[:, None, :]
    index = torch.arange(length, device=segment_ids.device)
    past = index[:, None] >= index[None, :]
    return (same_document & past)[:, None]


def packed_attention(q, k, v, segment_ids):
    """Causal attention inside each document of a packed row.

    q, k, v: (batch, heads, tokens, head_dim); segment_ids: (batch, tokens), the number of each token's document
    """
    allowed = document_causal_mask(segment_ids)
    scale = q.shape[-1] ** -0.5
    scores = (q * scale) @ k.transpose(-2, -1)
    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    probs = F.softmax(scores, dim=-1)
    return probs @ v


def loss_mask(segment_ids):
    """False at the last token of each document, which predicts nothing."""
    return F.pad(segment_ids[:, 1:] == segment_ids[:, :-1], (0, 1))
'''

NAME: str | None = "packed_attention"
OPTIONS: list[str] = ["--layout", "BHTD", "--causal", "--documents"]
SPEC: dict[str, Any] = {"num_heads": 6, "causal": True, "documents": True, "out_proj": False}

WHERE = "    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)\n"
PROBS = "probs = F.softmax(scores, dim=-1)"
ALLOWED = "(same_document & past)[:, None]"
PAST = "past = index[:, None] >= index[None, :]"

FAULTS: dict[str, Edits] = {
    "documents-leak": [(ALLOWED, "past[None, None]")],
    "causal-missing": [(ALLOWED, "same_document[:, None]")],
    "causal-strict": [
        (PAST, "past = index[:, None] > index[None, :]"),
        ("torch.finfo(scores.dtype).min", 'float("-inf")'),
    ],
    "causal-one-ahead": [(PAST, "past = index[:, None] >= index[None, :] - 1")],
    "causal-inverted": [(PAST, "past = index[:, None] <= index[None, :]")],
    "scores-transposed": [("(q * scale) @ k.transpose(-2, -1)", "(k * scale) @ q.transpose(-2, -1)")],
    "scale-missing": [("(q * scale)", "q")],
    "scale-by-model-width": [("q.shape[-1] ** -0.5", "(q.shape[1] * q.shape[-1]) ** -0.5")],
    "scale-inverted": [("q.shape[-1] ** -0.5", "q.shape[-1] ** 0.5")],
    "scale-twice": [("k.transpose(-2, -1)", "(k * scale).transpose(-2, -1)")],
    "scale-after-softmax": [("(q * scale)", "q"), ("return probs @ v", "return (probs * scale) @ v")],
    "scale-other-constant": [("q.shape[-1] ** -0.5", "q.shape[-2] ** -0.5")],
    "mask-added-as-number": [(WHERE, "    scores = scores + allowed.to(scores.dtype)\n")],
    "masked-scores-zeroed": [("torch.finfo(scores.dtype).min", "0.0")],
    "mask-after-softmax": [(WHERE, ""), (PROBS, PROBS + ".masked_fill(~allowed, 0.0)")],
    "mask-fill-too-small": [("torch.finfo(scores.dtype).min", "-5.0")],
    "softmax-over-queries": [("dim=-1)\n    return probs", "dim=-2)\n    return probs")],
    "softmax-over-heads-or-batch": [("dim=-1)\n    return probs", "dim=1)\n    return probs")],
    "softmax-low-precision": [(PROBS, "probs = F.softmax(scores, dim=-1, dtype=torch.bfloat16).to(v.dtype)")],
    "weights-times-key": [("return probs @ v", "return probs @ k")],
    "strided-read-as-contiguous": [
        (
            "    allowed = document_causal_mask(segment_ids)",
            "    v = torch.as_strided(v, v.shape, torch.empty(v.shape, device='meta').stride())\n"
            "    allowed = document_causal_mask(segment_ids)",
        ),
    ],
}
MORE_FAULTS: dict[str, Edits] = {
    "documents-leak: earlier documents visible": [
        ("segment_ids[:, :, None] == segment_ids[:, None, :]", "segment_ids[:, :, None] >= segment_ids[:, None, :]"),
    ],
    "documents-leak: is_causal": [
        ("    return probs @ v", "    return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ],
    "mask-of-other-sequence: documents of the first row": [
        ("document_causal_mask(segment_ids)\n    scale", "document_causal_mask(segment_ids[:1])\n    scale"),
    ],
    "causal-inverted: strictly": [
        (PAST, "past = index[:, None] < index[None, :]"),
        ("torch.finfo(scores.dtype).min", 'float("-inf")'),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("documents-leak", "scale-missing"),
    ("causal-missing", "weights-times-key"),
    ("causal-one-ahead", "scale-by-model-width"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "sdpa": [("    return probs @ v", "    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)")],
    "fill -1e4": [("torch.finfo(scores.dtype).min", "-1e4")],
    "scale on the scores": [("(q * scale) @ k.transpose(-2, -1)", "q @ k.transpose(-2, -1) * scale")],
    "mask after softmax, renormalised": [
        (WHERE, ""),
        (PROBS, PROBS + " * allowed\n    probs = probs / probs.sum(dim=-1, keepdim=True)"),
    ],
    "float32 softmax": [(PROBS, "probs = F.softmax(scores.float(), dim=-1).to(v.dtype)")],
    "counted from the front of each document": [
        (PAST, "past = (index[:, None] - index[None, :]).clamp(min=-1) >= 0"),
    ],
    "document by document": [
        (
            "    return probs @ v",
            "    out = torch.zeros_like(v)\n    for b, row in enumerate(segment_ids):\n"
            "        for document in row.unique():\n"
            "            t = (row == document).nonzero()[:, 0]\n"
            "            out[b][:, t] = F.scaled_dot_product_attention(\n"
            "                q[b][:, t], k[b][:, t], v[b][:, t], is_causal=True\n            )\n    return out",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on rows of unequal documents and on inputs that are not contiguous."""
    attention = namespace["packed_attention"]
    segment_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 2], [0, 0, 1, 1, 1, 1, 1, 1, 2, 2]])
    q, k, v = (normal(2, 6, 10, 8, seed=seed) for seed in range(3))
    outputs = [attention(q, k, v, segment_ids)]
    q, k, v = (normal(2, 10, 6, 8, seed=3 + seed).transpose(1, 2) for seed in range(3))
    outputs.append(attention(q, k, v, segment_ids))
    return outputs
