"""The taste of a release's plain reference: grouped tensors `(b, n, kv, g, d)`, einsum, a window, sinks appended."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import math

import torch


def sdpa(Q, K, V, S, sm_scale, sliding_window=0):
    """Q (batch, tokens, kv heads, q heads per kv head, d), K, V (batch, tokens, kv heads, d), S one sink a q head."""
    batch, n_tokens, n_kv, q_mult, d_head = Q.shape
    K = K[:, :, :, None, :].expand(-1, -1, -1, q_mult, -1)
    V = V[:, :, :, None, :].expand(-1, -1, -1, q_mult, -1)
    S = S.reshape(1, n_kv, q_mult, 1, 1).expand(batch, -1, -1, n_tokens, -1)
    mask = torch.triu(Q.new_full((n_tokens, n_tokens), -float("inf")), diagonal=1)
    if sliding_window > 0:
        mask += torch.tril(mask.new_full((n_tokens, n_tokens), -float("inf")), diagonal=-sliding_window)
    QK = torch.einsum("bqhmd,bkhmd->bhmqk", Q, K)
    QK = QK * sm_scale
    QK = QK + mask
    QK = torch.cat([QK, S], dim=-1)
    W = torch.softmax(QK, dim=-1)
    W = W[..., :-1]
    attn = torch.einsum("bhmqk,bkhmd->bqhmd", W, V)
    return attn.reshape(batch, n_tokens, -1)


class AttentionBlock(torch.nn.Module):
    """Causal attention in a sliding window."""

    def __init__(self, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, head_dim=8, sliding_window=5):
        super().__init__()
        self.head_dim = head_dim
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.sliding_window = sliding_window
        self.sinks = torch.nn.Parameter(torch.empty(num_attention_heads).normal_())
        qkv_dim = head_dim * (num_attention_heads + 2 * num_key_value_heads)
        self.qkv = torch.nn.Linear(hidden_size, qkv_dim)
        self.out = torch.nn.Linear(head_dim * num_attention_heads, hidden_size)
        self.sm_scale = 1 / math.sqrt(head_dim)

    def forward(self, x):
        qkv = self.qkv(x)
        q_width = self.num_attention_heads * self.head_dim
        kv_width = self.num_key_value_heads * self.head_dim
        q, k, v = torch.split(qkv, [q_width, kv_width, kv_width], dim=-1)
        batch, n_tokens, _ = x.shape
        q = q.reshape(batch, n_tokens, self.num_key_value_heads, -1, self.head_dim)
        k = k.reshape(batch, n_tokens, self.num_key_value_heads, self.head_dim)
        v = v.reshape(batch, n_tokens, self.num_key_value_heads, self.head_dim)
        t = sdpa(q, k, v, self.sinks, self.sm_scale, self.sliding_window)
        return self.out(t)
'''

NAME: str | None = "AttentionBlock"
OPTIONS: list[str] = ["--causal", "--window", "5", "--sinks"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "window": 5,
    "sinks": True,
    "projection_bias": True,
}

SCALE = "    QK = QK * sm_scale\n"
MASK = "    QK = QK + mask\n"
CAT = "QK = torch.cat([QK, S], dim=-1)"
SOFTMAX = "W = torch.softmax(QK, dim=-1)"
DROP = "W = W[..., :-1]"
TRIU = 'mask = torch.triu(Q.new_full((n_tokens, n_tokens), -float("inf")), diagonal=1)'
WINDOW = '        mask += torch.tril(mask.new_full((n_tokens, n_tokens), -float("inf")), diagonal=-sliding_window)\n'
GROUPS = "q = q.reshape(batch, n_tokens, self.num_key_value_heads, -1, self.head_dim)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("t = sdpa(q, k, v,", "t = sdpa(q, k, k,")],
    "key-value-swapped": [("q, k, v = torch.split", "q, v, k = torch.split")],
    "projection-transposed": [("return self.out(t)", "return t @ self.out.weight + self.out.bias")],
    "fused-qkv-layout": [
        (
            "q, k, v = torch.split(qkv, [q_width, kv_width, kv_width], dim=-1)",
            "grouped = qkv.unflatten(-1, (self.num_key_value_heads, -1))\n"
            "        widths = [q_width // self.num_key_value_heads, self.head_dim, self.head_dim]\n"
            "        q, k, v = grouped.split(widths, dim=-1)",
        ),
    ],
    "kv-heads-tiled": [
        ("K = K[:, :, :, None, :].expand(-1, -1, -1, q_mult, -1)", "K = K.repeat(1, 1, q_mult, 1).view(Q.shape)"),
        ("V = V[:, :, :, None, :].expand(-1, -1, -1, q_mult, -1)", "V = V.repeat(1, 1, q_mult, 1).view(Q.shape)"),
    ],
    "kv-head-divisor": [
        ("K = K[:, :, :, None, :]", "K = K[:, :, :1, None, :].expand(-1, -1, n_kv, -1, -1)"),
        ("V = V[:, :, :, None, :]", "V = V[:, :, :1, None, :].expand(-1, -1, n_kv, -1, -1)"),
    ],
    "heads-merged-by-view": [("bhmqk,bkhmd->bqhmd", "bhmqk,bkhmd->bhmqd")],
    "scores-transposed": [("bqhmd,bkhmd->bhmqk", "bkhmd,bqhmd->bhmqk")],
    "scale-missing": [(SCALE, "")],
    "scale-by-model-width": [("1 / math.sqrt(head_dim)", "1 / math.sqrt(hidden_size)")],
    "scale-inverted": [("1 / math.sqrt(head_dim)", "math.sqrt(head_dim)")],
    "scale-twice": [("1 / math.sqrt(head_dim)", "1 / head_dim")],
    "scale-after-softmax": [(SCALE, ""), (DROP, DROP + " * sm_scale")],
    "scale-other-constant": [("1 / math.sqrt(head_dim)", "1 / math.sqrt(num_attention_heads)")],
    "causal-missing": [(TRIU, "mask = Q.new_zeros((n_tokens, n_tokens))")],
    "causal-strict": [("diagonal=1)", "diagonal=0)")],
    "causal-one-ahead": [("diagonal=1)", "diagonal=2)")],
    "mask-added-as-number": [(MASK, "    QK = QK + (mask == 0)\n")],
    "masked-scores-zeroed": [(MASK, "    QK = QK * (mask == 0)\n")],
    "mask-after-softmax": [(MASK, ""), (DROP, DROP + " * (mask == 0)")],
    "mask-fill-too-small": [(MASK, "    QK = QK.masked_fill(mask != 0, -6.0)\n")],
    "window-off-by-one": [("diagonal=-sliding_window", "diagonal=-sliding_window - 1")],
    "window-missing": [(WINDOW, "        pass\n")],
    "sink-missing": [(DROP, DROP + "\n    W = W / W.sum(dim=-1, keepdim=True)")],
    "softmax-low-precision": [(SOFTMAX, "W = torch.softmax(QK.to(torch.bfloat16), dim=-1).to(V.dtype)")],
    "weights-times-key": [("W, V)", "W, K)")],
    "output-projection-missing": [("return self.out(t)", "return t")],
    "bias-term": [("return self.out(t)", "return self.out(t) - self.out.bias")],
}
MORE_FAULTS: dict[str, Edits] = {
    "sink-missing: no sink at all": [("    " + CAT + "\n", ""), ("    " + DROP + "\n", "")],
    "window-off-by-one: one too few": [("diagonal=-sliding_window", "diagonal=1 - sliding_window")],
    "sink-counted-per-block: two sinks": [(CAT, "QK = torch.cat([QK, S, S], dim=-1)"), (DROP, "W = W[..., :-2]")],
    "fused-qkv-layout: key and value widths first": [
        (
            "q, k, v = torch.split(qkv, [q_width, kv_width, kv_width], dim=-1)",
            "k, v, q = torch.split(qkv, [kv_width, kv_width, q_width], dim=-1)",
        ),
    ],
    "kv-heads-tiled: groups of queries viewed the other way": [
        (GROUPS, "q = q.reshape(batch, n_tokens, -1, self.num_key_value_heads, self.head_dim).transpose(2, 3)"),
        ('attn = torch.einsum("bhmqk,bkhmd->bqhmd", W, V)', 'attn = torch.einsum("bhmqk,bkhmd->bqmhd", W, V)'),
        ("S = S.reshape(1, n_kv, q_mult, 1, 1)", "S = S.reshape(1, q_mult, n_kv, 1, 1).transpose(1, 2)"),
    ],
    "window-missing: argument lost": [(", self.sm_scale, self.sliding_window)", ", self.sm_scale)")],
}
PAIRS = pairs(
    FAULTS,
    ("sink-missing", "window-off-by-one"),
    ("kv-heads-tiled", "scale-missing"),
    ("causal-one-ahead", "bias-term"),
    ("window-missing", "key-value-swapped"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "sink first": [(CAT, "QK = torch.cat([S, QK], dim=-1)"), (DROP, "W = W[..., 1:]")],
    "sink as the log of the sum": [
        ("    " + CAT + "\n", ""),
        (SOFTMAX, "lse = torch.logsumexp(QK, dim=-1, keepdim=True)\n    W = torch.softmax(QK, dim=-1)"),
        (DROP, "W = W * torch.sigmoid(lse - S)"),
    ],
    "fill -1e4": [(MASK, "    QK = QK.masked_fill(mask != 0, -1e4)\n")],
    "scale on the query": [(SCALE, ""), ('->bhmqk", Q, K)', '->bhmqk", Q * sm_scale, K)')],
    "float32 softmax": [(SOFTMAX, "W = torch.softmax(QK.float(), dim=-1).to(V.dtype)")],
    "value of zero for the sink": [
        (DROP, "V = torch.cat([V, torch.zeros_like(V[:, :1])], dim=1)"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches longer than the window."""
    return module_outputs(namespace["AttentionBlock"]())
