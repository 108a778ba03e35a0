"""The taste of an image-model library: one fused `qkv`, `reshape(B, N, 3, H, D).permute`, no mask."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''from torch import nn


class Mlp(nn.Module):
    def __init__(self, in_features, hidden_features):
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden_features)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_features, in_features)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Attention(nn.Module):
    """Self-attention over the patches of an image; every patch sees every patch."""

    def __init__(self, dim, num_heads=8, qkv_bias=False, attn_drop=0.0, proj_drop=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.scale = self.head_dim**-0.5

        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)

        q = q * self.scale
        attn = q @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = attn @ v

        x = x.transpose(1, 2).reshape(B, N, C)
        x = self.proj(x)
        x = self.proj_drop(x)
        return x


class Block(nn.Module):
    def __init__(self, dim, num_heads, mlp_ratio=4.0):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads=num_heads, qkv_bias=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))
'''

NAME: str | None = "Attention"
OPTIONS: list[str] = ["--init", '{"dim": 48, "num_heads": 6, "qkv_bias": true, "attn_drop": 0.2}']
SPEC: dict[str, Any] = {"num_heads": 6, "head_dim": 8, "embed_dim": 48, "dropout_p": 0.2, "projection_bias": True}

QKV = "self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)"
SCALE = "        q = q * self.scale\n"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("q, k, v = qkv.unbind(0)", "q, k, v = qkv[0], qkv[1], qkv[1]")],
    "key-value-swapped": [("q, k, v = qkv.unbind(0)", "q, v, k = qkv.unbind(0)")],
    "projection-transposed": [("self.proj(x)", "x @ self.proj.weight + self.proj.bias")],
    "fused-qkv-layout": [
        (QKV, "self.qkv(x).reshape(B, N, self.num_heads, 3, self.head_dim).permute(3, 0, 2, 1, 4)"),
    ],
    "heads-split-by-view": [
        (
            "q, k, v = qkv.unbind(0)",
            "q, k, v = (t.reshape(B, self.num_heads, N, self.head_dim) for t in self.qkv(x).chunk(3, dim=-1))",
        ),
    ],
    "strided-read-as-contiguous": [
        ("x = attn @ v", "v = v.transpose(1, 2).reshape(B, self.num_heads, N, self.head_dim)\n        x = attn @ v"),
    ],
    "heads-merged-by-view": [("x.transpose(1, 2).reshape(B, N, C)", "x.reshape(B, N, C)")],
    "attends-over-batch": [
        ("B, N, C = x.shape", "x = x.transpose(0, 1)\n        B, N, C = x.shape"),
        ("return x\n\n\nclass Block", "return x.transpose(0, 1)\n\n\nclass Block"),
    ],
    "scores-transposed": [("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("self.scale = self.head_dim**-0.5", "self.scale = dim**-0.5")],
    "scale-inverted": [("self.head_dim**-0.5", "self.head_dim**0.5")],
    "scale-twice": [("attn = q @ k.transpose(-2, -1)", "attn = (q @ k.transpose(-2, -1)) * self.scale")],
    "scale-after-softmax": [(SCALE, ""), ("attn.softmax(dim=-1)", "attn.softmax(dim=-1) * self.scale")],
    "scale-other-constant": [("self.head_dim**-0.5", "num_heads**-0.5")],
    "prefix-block-missing": [
        (
            "attn = attn.softmax(dim=-1)",
            "attn = attn.masked_fill(attn.new_ones(N, N).triu(1).bool(), -1e9)\n        attn = attn.softmax(dim=-1)",
        )
    ],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2)")],
    "softmax-over-heads-or-batch": [("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [("attn.softmax(dim=-1)", "attn.half().softmax(dim=-1).type_as(v)")],
    "weights-times-key": [("x = attn @ v", "x = attn @ k")],
    "dropout-in-eval": [("self.attn_drop(attn)", "nn.functional.dropout(attn, self.attn_drop.p)")],
    "output-projection-missing": [("        x = self.proj(x)\n", "")],
    "bias-term": [("self.qkv(x)", "nn.functional.linear(x, self.qkv.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "fused-qkv-layout: channels, then thirds": [
        (QKV, "self.qkv(x).reshape(B, N, self.num_heads, self.head_dim, 3).permute(4, 0, 2, 1, 3)"),
    ],
    "heads-merged-by-view: wrong axes": [("x.transpose(1, 2).reshape(B, N, C)", "x.contiguous().view(B, -1, C)")],
    "softmax-over-heads-or-batch: dim 0": [("softmax(dim=-1)", "softmax(dim=0)")],
    "scale-by-model-width: at the scores": [("q = q * self.scale", "q = q * C**-0.5")],
    "bias-term: output": [("self.proj(x)", "self.proj(x) - self.proj.bias")],
}
PAIRS = pairs(
    FAULTS,
    ("fused-qkv-layout", "scale-by-model-width"),
    ("scale-missing", "heads-merged-by-view"),
    ("softmax-over-queries", "key-value-swapped"),
    ("attends-over-batch", "scale-twice"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "scale on the scores": [(SCALE, ""), ("q @ k.transpose(-2, -1)", "(q @ k.transpose(-2, -1)) * self.scale")],
    "fourth root on both": [(SCALE, "        q, k = q * self.scale**0.5, k * self.scale**0.5\n")],
    "chunk": [
        (
            "q, k, v = qkv.unbind(0)",
            "q, k, v = (t.reshape(B, N, self.num_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))",
        ),
    ],
    "fused": [
        (SCALE, ""),
        ("        attn = q @ k.transpose(-2, -1)\n", ""),
        ("        attn = attn.softmax(dim=-1)\n        attn = self.attn_drop(attn)\n", ""),
        ("x = attn @ v", "x = nn.functional.scaled_dot_product_attention(q, k, v)"),
    ],
    "float32 softmax": [("attn.softmax(dim=-1)", "attn.float().softmax(dim=-1).type_as(v)")],
    "keys first": [
        ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"),
        ("softmax(dim=-1)", "softmax(dim=2)"),
        ("x = attn @ v", "x = attn.transpose(2, 3) @ v"),
    ],
    "maximum taken off": [("attn.softmax", "(attn - attn.amax(dim=-1, keepdim=True)).softmax")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["Attention"](48, num_heads=6, qkv_bias=True, attn_drop=0.2))
