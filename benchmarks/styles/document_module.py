"""The taste of a speed-run trainer: one short module on sdpa, a window, documents kept apart by their ids."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.styles._kit import Edits, normal, pairs, randomised

SOURCE = '''import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PackedCausalSelfAttention(nn.Module):
    """Causal attention over a packed row; document_ids (batch, tokens) keeps the documents of the row apart."""

    def __init__(self, dim: int = 48, num_heads: int = 6, window: int = 4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.window = window
        self.c_q = nn.Linear(dim, dim, bias=False)
        self.c_k = nn.Linear(dim, dim, bias=False)
        self.c_v = nn.Linear(dim, dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)

    def visible(self, document_ids: Tensor) -> Tensor:
        token = torch.arange(document_ids.size(1), device=document_ids.device)
        query, key = token[:, None], token[None, :]
        causal = query >= key
        window = query - key < self.window
        document = document_ids[:, :, None] == document_ids[:, None, :]
        return (causal & window & document).unsqueeze(1)

    def forward(self, x: Tensor, document_ids: Tensor | None = None) -> Tensor:
        B, T, C = x.shape
        if document_ids is None:
            document_ids = torch.zeros(B, T, dtype=torch.long, device=x.device)
        q, k, v = (layer(x).view(B, T, self.num_heads, self.head_dim) for layer in (self.c_q, self.c_k, self.c_v))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.visible(document_ids))
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)
'''

NAME: str | None = None
OPTIONS: list[str] = ["--window", "4", "--documents"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "window": 4,
    "documents": True,
}

CALL = "F.scaled_dot_product_attention(q, k, v, attn_mask=self.visible(document_ids))"
RULE = "(causal & window & document)"
SAME = "document_ids[:, :, None] == document_ids[:, None, :]"
LAYERS = "(layer(x).view(B, T, self.num_heads, self.head_dim) for layer in (self.c_q, self.c_k, self.c_v))"
MOVED = "q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)"


def with_scale(scale: str) -> Edits:
    """The call with a scale of its own."""
    return [(CALL, CALL.replace("k, v,", f"k, v, scale={scale},"))]


def with_mask(mask: str) -> Edits:
    """The call with a mask made otherwise of the visible keys."""
    return [("attn_mask=self.visible(document_ids)", f"attn_mask={mask.format('self.visible(document_ids)')}")]


FAULTS: dict[str, Edits] = {
    "value-is-key": [("(self.c_q, self.c_k, self.c_v)", "(self.c_q, self.c_k, self.c_k)")],
    "key-value-swapped": [("(self.c_q, self.c_k, self.c_v)", "(self.c_q, self.c_v, self.c_k)")],
    "projection-transposed": [("self.c_proj(y)", "y @ self.c_proj.weight")],
    "heads-split-by-view": [(LAYERS, LAYERS.replace("T, self.num_heads", "self.num_heads, T")), (MOVED, "pass")],
    "strided-read-as-contiguous": [
        (MOVED, "q, k = q.transpose(1, 2), k.transpose(1, 2)\n        v = v.view(B, self.num_heads, T, self.head_dim)"),
    ],
    "heads-merged-by-view": [("y.transpose(1, 2).contiguous()", "y.contiguous()")],
    "scores-transposed": [(CALL, CALL.replace("(q, k,", "(k, q,"))],
    "scale-missing": with_scale("1.0"),
    "scale-by-model-width": with_scale("C**-0.5"),
    "scale-inverted": with_scale("self.head_dim**0.5"),
    "scale-twice": with_scale("1 / self.head_dim"),
    "scale-other-constant": with_scale("0.5"),
    "causal-missing": [(RULE, "(window & document)")],
    "causal-one-ahead": [("query >= key", "query + 1 >= key")],
    "documents-leak": [(RULE, "(causal & window).expand(document.shape)")],
    "window-off-by-one": [("query - key < self.window", "query - key <= self.window")],
    "window-missing": [(RULE, "(causal & document)")],
    "mask-added-as-number": with_mask("{}.to(x.dtype)"),
    "mask-fill-too-small": with_mask("(~{}).to(x.dtype) * -9.0"),
    "weights-times-key": [("(q, k, v, attn", "(q, k, k, attn")],
    "output-projection-missing": [("return self.c_proj(y)", "return y")],
}
MORE_FAULTS: dict[str, Edits] = {
    "documents-leak: later documents see the earlier": [(SAME, "document_ids[:, :, None] >= document_ids[:, None, :]")],
    "documents-leak: ids dropped": [("if document_ids is None:", "if True:")],
    "window-off-by-one: one too few": [("query - key < self.window", "query - key < self.window - 1")],
    "mask-order: or in place of and": [(RULE, "(causal & (window | document))")],
    "mask-of-other-sequence: ids of the first row": [(SAME, "document_ids[:1, :, None] == document_ids[:1, None, :]")],
}
PAIRS = pairs(
    FAULTS,
    ("documents-leak", "window-off-by-one"),
    ("window-missing", "scale-by-model-width"),
    ("value-is-key", "causal-one-ahead"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "additive -1e4": with_mask("(~{}).to(x.dtype) * -1e4"),
    "additive -inf": with_mask('torch.where({}, 0.0, float("-inf")).to(x.dtype)'),
    "own scale": with_scale("self.head_dim**-0.5"),
    "window as a comparison of keys": [("query - key < self.window", "key > query - self.window")],
    "by hand": [
        (CALL, "(q @ k.mT * self.head_dim**-0.5).masked_fill(~self.visible(document_ids), -1e9).softmax(-1) @ v"),
    ],
    "float32 softmax": [
        (
            CALL,
            "(q @ k.mT * self.head_dim**-0.5).masked_fill(~self.visible(document_ids), -1e9).softmax(\n"
            "            -1, dtype=torch.float32\n        ).to(x.dtype) @ v",
        ),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on one document and on rows of unequal documents."""
    module = randomised(namespace["PackedCausalSelfAttention"]())
    document_ids = torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2]])
    with torch.no_grad():
        return [module(normal(2, 11, 48, seed=1)), module(normal(2, 11, 48, seed=2), document_ids)]
