"""The taste of a large model library: `q_proj … o_proj`, `repeat_kv`, `rotate_half`, a config with key/value heads."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class DecoderConfig:
    hidden_size: int = 48
    intermediate_size: int = 96
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    rope_theta: float = 10000.0
    attention_bias: bool = False


class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def rotate_half(x):
    """Turns the second half of the channels into the first."""
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def repeat_kv(hidden_states, n_rep):
    """(batch, kv heads, seqlen, head_dim) to (batch, heads, seqlen, head_dim)"""
    batch, num_key_value_heads, slen, head_dim = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
    return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)


class CausalAttention(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        self.num_key_value_groups = self.num_heads // self.num_key_value_heads
        self.head_dim = self.hidden_size // self.num_heads
        self.rope_theta = config.rope_theta

        self.q_proj = nn.Linear(self.hidden_size, self.num_heads * self.head_dim, bias=config.attention_bias)
        self.k_proj = nn.Linear(self.hidden_size, self.num_key_value_heads * self.head_dim, bias=config.attention_bias)
        self.v_proj = nn.Linear(self.hidden_size, self.num_key_value_heads * self.head_dim, bias=config.attention_bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, self.hidden_size, bias=config.attention_bias)

    def rotary_tables(self, length, device, dtype):
        channels = torch.arange(0, self.head_dim, 2, device=device, dtype=torch.float64)
        inv_freq = 1.0 / (self.rope_theta ** (channels / self.head_dim))
        positions = torch.arange(length, device=device, dtype=torch.float64)
        freqs = torch.outer(positions, inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype), emb.sin().to(dtype)

    def forward(self, hidden_states):
        bsz, q_len, _ = hidden_states.size()

        query_states = self.q_proj(hidden_states)
        key_states = self.k_proj(hidden_states)
        value_states = self.v_proj(hidden_states)

        query_states = query_states.view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
        key_states = key_states.view(bsz, q_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)
        value_states = value_states.view(bsz, q_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)

        cos, sin = self.rotary_tables(q_len, hidden_states.device, hidden_states.dtype)
        query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)

        key_states = repeat_kv(key_states, self.num_key_value_groups)
        value_states = repeat_kv(value_states, self.num_key_value_groups)

        attn_weights = torch.matmul(query_states, key_states.transpose(2, 3)) * self.head_dim**-0.5

        min_value = torch.finfo(attn_weights.dtype).min
        causal_mask = torch.full((q_len, q_len), min_value, dtype=attn_weights.dtype, device=attn_weights.device)
        causal_mask = torch.triu(causal_mask, diagonal=1)
        attn_weights = attn_weights + causal_mask

        attn_weights = nn.functional.softmax(attn_weights, dim=-1)
        attn_output = torch.matmul(attn_weights, value_states)

        attn_output = attn_output.transpose(1, 2).contiguous()
        attn_output = attn_output.reshape(bsz, q_len, self.num_heads * self.head_dim)
        return self.o_proj(attn_output)


class GatedMLP(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
'''

NAME: str | None = "CausalAttention"
OPTIONS: list[str] = ["--rope", "halves"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "rope": {"pairing": "halves", "base": 10000.0},
}

SOFTMAX = "nn.functional.softmax(attn_weights, dim=-1)"
ADD_MASK = "attn_weights = attn_weights + causal_mask"
EXPAND = "hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)"
REPEATED = "return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)"
EMB = "emb = torch.cat((freqs, freqs), dim=-1)"
ROTATED = "return torch.cat((-x2, x1), dim=-1)"
KEYS = "key_states = key_states.view(bsz, q_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)"
VALUES = "value_states = value_states.view(bsz, q_len, self.num_key_value_heads, self.head_dim).transpose(1, 2)"
QUERIES = "query_states = query_states.view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)"
ROTATE = "query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)"


def by_view(line: str, heads: str) -> tuple[str, str]:
    """The split into heads on this line made by a view alone."""
    return line, line.replace(f"q_len, {heads},", f"{heads}, q_len,").replace(".transpose(1, 2)", "")


FAULTS: dict[str, Edits] = {
    "value-is-key": [("value_states = self.v_proj(hidden_states)", "value_states = self.k_proj(hidden_states)")],
    "key-value-swapped": [
        ("key_states = self.k_proj(hidden_states)", "key_states = self.v_proj(hidden_states)"),
        ("value_states = self.v_proj(hidden_states)", "value_states = self.k_proj(hidden_states)"),
    ],
    "projection-transposed": [("self.o_proj(attn_output)", "attn_output @ self.o_proj.weight")],
    "heads-split-by-view": [
        by_view(QUERIES, "self.num_heads"),
        by_view(KEYS, "self.num_key_value_heads"),
        by_view(VALUES, "self.num_key_value_heads"),
    ],
    "strided-read-as-contiguous": [by_view(VALUES, "self.num_key_value_heads")],
    "heads-merged-by-view": [("attn_output.transpose(1, 2).contiguous()", "attn_output.contiguous()")],
    "kv-heads-tiled": [(EXPAND, "hidden_states.repeat(1, n_rep, 1, 1)")],
    "kv-head-divisor": [(EXPAND, "hidden_states[:, :1].expand(batch, num_key_value_heads * n_rep, slen, head_dim)")],
    "rope-layout": [
        (EMB, "emb = freqs.repeat_interleave(2, dim=-1)"),
        ("x1 = x[..., : x.shape[-1] // 2]", "x1 = x[..., ::2]"),
        ("x2 = x[..., x.shape[-1] // 2 :]", "x2 = x[..., 1::2]"),
        (ROTATED, "return torch.stack((-x2, x1), dim=-1).flatten(-2)"),
    ],
    "rope-layout-mixed": [(EMB, "emb = freqs.repeat_interleave(2, dim=-1)")],
    "rope-sign": [(ROTATED, "return torch.cat((x2, -x1), dim=-1)")],
    "rope-frequencies": [("rope_theta: float = 10000.0", "rope_theta: float = 500000.0")],
    "scores-transposed": [
        (
            "torch.matmul(query_states, key_states.transpose(2, 3))",
            "torch.matmul(key_states, query_states.transpose(2, 3))",
        ),
    ],
    "scale-missing": [(" * self.head_dim**-0.5", "")],
    "scale-by-model-width": [("self.head_dim**-0.5", "self.hidden_size**-0.5")],
    "scale-inverted": [("self.head_dim**-0.5", "self.head_dim**0.5")],
    "scale-twice": [
        ("query_states = self.q_proj(hidden_states)", "query_states = self.q_proj(hidden_states) * self.head_dim**-0.5")
    ],
    "scale-after-softmax": [(" * self.head_dim**-0.5", ""), (SOFTMAX, SOFTMAX + " / self.head_dim**0.5")],
    "scale-other-constant": [("self.head_dim**-0.5", "self.num_key_value_heads**-0.5")],
    "causal-missing": [(ADD_MASK, "")],
    "causal-strict": [
        ("diagonal=1", "diagonal=0"),
        ("min_value = torch.finfo(attn_weights.dtype).min", 'min_value = float("-inf")'),
    ],
    "causal-one-ahead": [("diagonal=1", "diagonal=2")],
    "causal-inverted": [("torch.triu(causal_mask, diagonal=1)", "torch.tril(causal_mask, diagonal=-1)")],
    "mask-added-as-number": [(ADD_MASK, "attn_weights = attn_weights + (causal_mask == 0)")],
    "masked-scores-zeroed": [(ADD_MASK, "attn_weights = attn_weights * (causal_mask == 0)")],
    "mask-after-softmax": [
        (ADD_MASK, ""),
        ("torch.matmul(attn_weights, value_states)", "torch.matmul(attn_weights * (causal_mask == 0), value_states)"),
    ],
    "mask-fill-too-small": [("min_value = torch.finfo(attn_weights.dtype).min", "min_value = -10.0")],
    "softmax-over-queries": [("softmax(attn_weights, dim=-1)", "softmax(attn_weights, dim=-2)")],
    "softmax-over-heads-or-batch": [("softmax(attn_weights, dim=-1)", "softmax(attn_weights, dim=1)")],
    "softmax-low-precision": [
        (SOFTMAX, "nn.functional.softmax(attn_weights, dim=-1, dtype=torch.bfloat16).to(value_states.dtype)"),
    ],
    "weights-times-key": [("torch.matmul(attn_weights, value_states)", "torch.matmul(attn_weights, key_states)")],
    "output-projection-missing": [("self.o_proj(attn_output)", "attn_output")],
}
MORE_FAULTS: dict[str, Edits] = {
    "kv-heads-tiled: expand before the heads": [
        (EXPAND, "hidden_states[:, None].expand(batch, n_rep, num_key_value_heads, slen, head_dim)"),
    ],
    "rope-missing: not called": [(ROTATE, "")],
    "rope-frequencies: half the exponent": [("channels / self.head_dim", "channels / (2 * self.head_dim)")],
    "value-not-projected: a slice of the stream": [
        ("self.v_proj(hidden_states)", "hidden_states[..., : self.num_key_value_heads * self.head_dim]"),
    ],
    "rope-sign: minus in one place": [
        ("(q * cos) + (rotate_half(q) * sin)", "(q * cos) - (rotate_half(q) * sin)"),
        ("(k * cos) + (rotate_half(k) * sin)", "(k * cos) - (rotate_half(k) * sin)"),
    ],
    "value-after-rope: value rotated too": [
        (ROTATE, ROTATE + "\n        value_states = (value_states * cos) + (rotate_half(value_states) * sin)"),
    ],
    "scale-other-constant: key/value width": [
        ("self.head_dim**-0.5", "(self.num_key_value_heads * self.head_dim) ** -0.5"),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("kv-heads-tiled", "rope-layout"),
    ("rope-sign", "scale-missing"),
    ("causal-one-ahead", "kv-head-divisor"),
    ("rope-frequencies", "heads-merged-by-view"),
    ("value-is-key", "causal-missing"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "fill -1e4": [("min_value = torch.finfo(attn_weights.dtype).min", "min_value = -1e4")],
    "repeat_interleave": [
        (REPEATED, "return hidden_states"),
        (EXPAND, "hidden_states.repeat_interleave(n_rep, dim=1)"),
    ],
    "positions from a thousand on, both sides": [
        ("torch.arange(length, device", "1000 + torch.arange(length, device"),
    ],
    "turned the other way on both, positions counted down": [
        (ROTATED, "return torch.cat((x2, -x1), dim=-1)"),
        ("freqs = torch.outer(positions, inv_freq)", "freqs = torch.outer(-positions, inv_freq)"),
    ],
    "scale on the query": [
        (
            "query_states = self.q_proj(hidden_states)",
            "query_states = self.q_proj(hidden_states) * self.head_dim**-0.5",
        ),
        ("key_states.transpose(2, 3)) * self.head_dim**-0.5", "key_states.transpose(2, 3))"),
    ],
    "float32 softmax": [
        (SOFTMAX, "nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query_states.dtype)"),
    ],
    "sdpa": [
        (
            "attn_output = torch.matmul(attn_weights, value_states)",
            "attn_output = nn.functional.scaled_dot_product_attention(query_states, key_states, value_states, "
            "is_causal=True)",
        ),
    ],
    "reshape": [("attn_output.transpose(1, 2).contiguous()", "attn_output.transpose(1, 2)")],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["CausalAttention"](namespace["DecoderConfig"]()))
