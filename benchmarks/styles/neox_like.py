"""The taste of an older large model: head-major fused projection, rope by halves on a part of each head."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import torch
from torch import nn


class NeoStyleConfig:
    def __init__(self, hidden_size=48, num_attention_heads=6, rotary_pct=0.5, rotary_emb_base=10000, use_bias=True):
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.rotary_pct = rotary_pct
        self.rotary_emb_base = rotary_emb_base
        self.use_bias = use_bias
        self.is_decoder = True


def rotate_half(x):
    x1, x2 = x.split(x.shape[-1] // 2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class DecoderAttention(nn.Module):
    """Causal attention; every head's slice of the fused projection is its query, its key, its value."""

    def __init__(self, config):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.hidden_size = config.hidden_size
        self.head_size = config.hidden_size // config.num_attention_heads
        self.rotary_ndims = int(self.head_size * config.rotary_pct)
        self.base = config.rotary_emb_base
        self.norm_factor = self.head_size**0.5
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.use_bias)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.use_bias)

    def rotary(self, seq_len, dtype, device):
        inv_freq = self.base ** (-torch.arange(0, self.rotary_ndims, 2, dtype=dtype, device=device) / self.rotary_ndims)
        freqs = torch.einsum("i,j->ij", torch.arange(seq_len, dtype=dtype, device=device), inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()

    def forward(self, hidden_states):
        bsz, seq_len, _ = hidden_states.shape
        # [batch, seq_len, heads * 3 * head_size] -> [batch, heads, seq_len, 3 * head_size]
        qkv = self.query_key_value(hidden_states)
        qkv = qkv.view(bsz, seq_len, self.num_attention_heads, 3 * self.head_size).transpose(1, 2)
        query, key, value = qkv.chunk(3, dim=-1)

        cos, sin = self.rotary(seq_len, query.dtype, query.device)
        query_rot, query_pass = query[..., : self.rotary_ndims], query[..., self.rotary_ndims :]
        key_rot, key_pass = key[..., : self.rotary_ndims], key[..., self.rotary_ndims :]
        query_rot = query_rot * cos + rotate_half(query_rot) * sin
        key_rot = key_rot * cos + rotate_half(key_rot) * sin
        query = torch.cat((query_rot, query_pass), dim=-1)
        key = torch.cat((key_rot, key_pass), dim=-1)

        attn_scores = torch.matmul(query, key.transpose(-1, -2)) / self.norm_factor
        causal_mask = torch.tril(torch.ones(seq_len, seq_len, dtype=torch.bool, device=query.device))
        mask_value = torch.finfo(attn_scores.dtype).min
        attn_scores = torch.where(causal_mask, attn_scores, mask_value)
        attn_weights = nn.functional.softmax(attn_scores, dim=-1)
        attn_output = torch.matmul(attn_weights, value)

        attn_output = attn_output.permute(0, 2, 1, 3).contiguous()
        attn_output = attn_output.view(bsz, seq_len, self.hidden_size)
        return self.dense(attn_output)


class ParallelMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, 4 * config.hidden_size)
        self.down = nn.Linear(4 * config.hidden_size, config.hidden_size)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))
'''

NAME: str | None = "DecoderAttention"
OPTIONS: list[str] = ["--causal", "--rope", "halves", "--rope-dims", "4"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "rope": {"pairing": "halves", "base": 10000.0, "dims": 4},
    "projection_bias": True,
}

VIEW = "qkv = qkv.view(bsz, seq_len, self.num_attention_heads, 3 * self.head_size).transpose(1, 2)"
CHUNK = "query, key, value = qkv.chunk(3, dim=-1)"
TRIL = "torch.tril(torch.ones(seq_len, seq_len, dtype=torch.bool, device=query.device))"
WHERE = "attn_scores = torch.where(causal_mask, attn_scores, mask_value)"
SOFTMAX = "nn.functional.softmax(attn_scores, dim=-1)"
EMB = "emb = torch.cat((freqs, freqs), dim=-1)"
HALF = "return torch.cat((-x2, x1), dim=-1)"
SPLIT = "x1, x2 = x.split(x.shape[-1] // 2, dim=-1)"

FAULTS: dict[str, Edits] = {
    "value-is-key": [(CHUNK, "query, key, _ = qkv.chunk(3, dim=-1)\n        value = key")],
    "key-value-swapped": [("query, key, value = qkv", "query, value, key = qkv")],
    "projection-transposed": [("self.dense(attn_output)", "attn_output @ self.dense.weight + self.dense.bias")],
    "fused-qkv-layout": [
        (VIEW, ""),
        (
            CHUNK,
            "query, key, value = (\n            part.view(bsz, seq_len, self.num_attention_heads, -1).transpose(1, 2)"
            " for part in qkv.chunk(3, dim=-1)\n        )",
        ),
    ],
    "heads-merged-by-view": [("attn_output.permute(0, 2, 1, 3).contiguous()", "attn_output.contiguous()")],
    "rope-layout": [
        (EMB, "emb = freqs.repeat_interleave(2, dim=-1)"),
        (SPLIT, "x1, x2 = x[..., ::2], x[..., 1::2]"),
        (HALF, "return torch.stack((-x2, x1), dim=-1).flatten(-2)"),
    ],
    "rope-layout-mixed": [(EMB, "emb = freqs.repeat_interleave(2, dim=-1)")],
    "rope-sign": [(HALF, "return torch.cat((x2, -x1), dim=-1)")],
    "rope-frequencies": [("self.base = config.rotary_emb_base", "self.base = 500000")],
    "rope-partial-ignored": [("int(self.head_size * config.rotary_pct)", "self.head_size")],
    "rope-partial-frequencies": [("device=device) / self.rotary_ndims)", "device=device) / self.head_size)")],
    "scores-transposed": [("torch.matmul(query, key.transpose(-1, -2))", "torch.matmul(key, query.transpose(-1, -2))")],
    "scale-missing": [(" / self.norm_factor", "")],
    "scale-by-model-width": [("self.norm_factor = self.head_size**0.5", "self.norm_factor = self.hidden_size**0.5")],
    "scale-inverted": [("/ self.norm_factor", "* self.norm_factor")],
    "scale-twice": [("self.norm_factor = self.head_size**0.5", "self.norm_factor = self.head_size")],
    "scale-after-softmax": [(" / self.norm_factor", ""), (SOFTMAX, SOFTMAX + " / self.norm_factor")],
    "scale-other-constant": [("self.norm_factor = self.head_size**0.5", "self.norm_factor = self.rotary_ndims**0.5")],
    "causal-missing": [(WHERE, "")],
    "causal-strict": [
        ("dtype=torch.bool, device=query.device))", "dtype=torch.bool, device=query.device), -1)"),
        ("mask_value = torch.finfo(attn_scores.dtype).min", 'mask_value = float("-inf")'),
    ],
    "causal-one-ahead": [
        ("dtype=torch.bool, device=query.device))", "dtype=torch.bool, device=query.device), diagonal=1)")
    ],
    "causal-inverted": [
        ("torch.where(causal_mask, attn_scores, mask_value)", "torch.where(~causal_mask, attn_scores, mask_value)")
    ],
    "mask-added-as-number": [(WHERE, "attn_scores = attn_scores + causal_mask.to(attn_scores.dtype)")],
    "masked-scores-zeroed": [("mask_value = torch.finfo(attn_scores.dtype).min", "mask_value = 1e-9")],
    "mask-after-softmax": [(WHERE, ""), (SOFTMAX, f"torch.where(causal_mask, {SOFTMAX}, 0.0)")],
    "mask-fill-too-small": [("mask_value = torch.finfo(attn_scores.dtype).min", "mask_value = -7.0")],
    "softmax-over-queries": [("attn_scores, dim=-1)", "attn_scores, dim=-2)")],
    "softmax-over-heads-or-batch": [("attn_scores, dim=-1)", "attn_scores, dim=1)")],
    "softmax-low-precision": [(SOFTMAX, "nn.functional.softmax(attn_scores.bfloat16(), dim=-1).to(value.dtype)")],
    "weights-times-key": [("torch.matmul(attn_weights, value)", "torch.matmul(attn_weights, key)")],
    "output-projection-missing": [("return self.dense(attn_output)", "return attn_output")],
    "bias-term": [("self.dense(attn_output)", "nn.functional.linear(attn_output, self.dense.weight)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "fused-qkv-layout: viewed (3, H, d)": [
        (VIEW, "qkv = qkv.view(bsz, seq_len, 3, self.num_attention_heads, self.head_size).permute(2, 0, 3, 1, 4)"),
        (CHUNK, "query, key, value = qkv.unbind(0)"),
    ],
    "rope-missing: halves passed through": [
        ("query_rot = query_rot * cos + rotate_half(query_rot) * sin", "pass"),
        ("key_rot = key_rot * cos + rotate_half(key_rot) * sin", "pass"),
    ],
    "causal-inverted: triu": [("torch.tril(", "torch.triu(")],
}
PAIRS = pairs(
    FAULTS,
    ("rope-partial-ignored", "scale-missing"),
    ("fused-qkv-layout", "causal-missing"),
    ("rope-layout", "bias-term"),
    ("rope-sign", "heads-merged-by-view"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("mask_value = torch.finfo(attn_scores.dtype).min", "mask_value = -1e4")],
    "parts by slices": [
        (CHUNK, "query, key, value = (qkv[..., i * self.head_size : (i + 1) * self.head_size] for i in range(3))"),
    ],
    "whole head with an angle of zero for the rest": [
        (
            EMB,
            "freqs = torch.nn.functional.pad(freqs, (0, self.head_size // 2 - freqs.size(-1)))\n"
            "        emb = torch.cat((freqs, freqs), dim=-1)",
        ),
        (
            "query_rot, query_pass = query[..., : self.rotary_ndims], query[..., self.rotary_ndims :]",
            "half, rest = self.rotary_ndims // 2, self.rotary_ndims\n"
            "        order = [*range(half), *range(rest, rest + (self.head_size - rest) // 2), *range(half, rest),\n"
            "                 *range(rest + (self.head_size - rest) // 2, self.head_size)]\n"
            "        query_rot, query_pass = query[..., order], query[..., :0]",
        ),
        (
            "key_rot, key_pass = key[..., : self.rotary_ndims], key[..., self.rotary_ndims :]",
            "key_rot, key_pass = key[..., order], key[..., :0]",
        ),
    ],
    "scale on both": [
        (" / self.norm_factor", ""),
        (
            "query = torch.cat((query_rot, query_pass), dim=-1)",
            "query = torch.cat((query_rot, query_pass), dim=-1) / self.norm_factor**0.5",
        ),
        (
            "key = torch.cat((key_rot, key_pass), dim=-1)",
            "key = torch.cat((key_rot, key_pass), dim=-1) / self.norm_factor**0.5",
        ),
    ],
    "sdpa": [
        (
            "attn_output = torch.matmul(attn_weights, value)",
            "attn_output = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)",
        )
    ],
    "float32 softmax": [(SOFTMAX, "nn.functional.softmax(attn_scores.float(), dim=-1).to(value.dtype)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["DecoderAttention"](namespace["NeoStyleConfig"]()))
