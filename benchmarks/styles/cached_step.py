"""The taste of a generation loop: a module with a key/value cache, fed token by token; partial adjacent rope."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, module_outputs, pairs

SOURCE = '''import torch
from torch import nn


class KeyValueCache:
    """Keys and values of the tokens so far, (batch, heads, tokens, head_dim)."""

    def __init__(self):
        self.keys = None
        self.values = None

    def __len__(self):
        return 0 if self.keys is None else self.keys.size(2)

    def append(self, key, value):
        if self.keys is None:
            self.keys, self.values = key, value
        else:
            self.keys = torch.cat([self.keys, key], dim=2)
            self.values = torch.cat([self.values, value], dim=2)
        return self.keys, self.values


class StreamingCausalAttention(nn.Module):
    """Causal attention that reads a text token by token; forward(x) streams a whole text through an empty cache."""

    def __init__(self, embed_dim=48, num_heads=6, rotary_dim=4):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.rotary_dim = rotary_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def rotate(self, t, position):
        """Turn the pairs (0, 1), (2, 3), ... of the first rotary_dim channels; the others carry no position."""
        turned, rest = t[..., : self.rotary_dim], t[..., self.rotary_dim :]
        power = torch.arange(0, self.rotary_dim, 2, dtype=t.dtype, device=t.device) / self.rotary_dim
        angle = position * 10000.0**-power
        even, odd = turned[..., 0::2], turned[..., 1::2]
        even, odd = even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()
        return torch.cat([torch.stack([even, odd], dim=-1).flatten(-2), rest], dim=-1)

    def step(self, token, cache):
        """token: (batch, 1, embed_dim)"""
        batch = token.size(0)
        q = self.q_proj(token).view(batch, 1, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(token).view(batch, 1, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(token).view(batch, 1, self.num_heads, self.head_dim).transpose(1, 2)

        position = len(cache)
        q = self.rotate(q, position)
        k = self.rotate(k, position)
        keys, values = cache.append(k, v)

        scores = (q @ keys.transpose(2, 3)) / self.head_dim**0.5
        weights = scores.softmax(dim=-1)
        context = weights @ values
        return self.out_proj(context.transpose(1, 2).reshape(batch, 1, self.embed_dim))

    def forward(self, x):
        cache = KeyValueCache()
        return torch.cat([self.step(token, cache) for token in x.split(1, dim=1)], dim=1)
'''

NAME: str | None = "StreamingCausalAttention"
OPTIONS: list[str] = ["--rope", "adjacent", "--rope-dims", "4"]
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "head_dim": 8,
    "embed_dim": 48,
    "causal": True,
    "rope": {"pairing": "adjacent", "base": 10000.0, "dims": 4},
}

POWER = "power = torch.arange(0, self.rotary_dim, 2, dtype=t.dtype, device=t.device) / self.rotary_dim"
SCORES = "scores = (q @ keys.transpose(2, 3)) / self.head_dim**0.5"
WEIGHTS = "weights = scores.softmax(dim=-1)"
TURNED = "turned, rest = t[..., : self.rotary_dim], t[..., self.rotary_dim :]"

FAULTS: dict[str, Edits] = {
    "value-is-key": [("v = self.v_proj(token)", "v = self.k_proj(token)")],
    "key-value-swapped": [
        ("k = self.k_proj(token)", "k = self.v_proj(token)"),
        ("v = self.v_proj(token)", "v = self.k_proj(token)"),
    ],
    "projection-transposed": [
        (
            "self.out_proj(context.transpose(1, 2).reshape(batch, 1, self.embed_dim))",
            "context.transpose(1, 2).reshape(batch, 1, self.embed_dim) @ self.out_proj.weight",
        )
    ],
    "rope-layout": [
        ("even, odd = turned[..., 0::2], turned[..., 1::2]", "even, odd = turned.chunk(2, dim=-1)"),
        ("torch.stack([even, odd], dim=-1).flatten(-2)", "torch.cat([even, odd], dim=-1)"),
    ],
    "rope-sign": [("angle = position * 10000.0**-power", "angle = -position * 10000.0**-power")],
    "rope-offset-lost": [("q = self.rotate(q, position)", "q = self.rotate(q, 0)")],
    "rope-offset-shifted": [
        (
            "position = len(cache)\n        q = self.rotate(q, position)",
            "position = len(cache)\n        q = self.rotate(q, position + 1)",
        )
    ],
    "rope-frequencies": [("10000.0**-power", "500.0**-power")],
    "rope-partial-ignored": [
        (TURNED, "turned, rest = t, t[..., :0]"),
        (POWER, "power = torch.arange(0, self.head_dim, 2, dtype=t.dtype, device=t.device) / self.head_dim"),
    ],
    "rope-partial-frequencies": [("device=t.device) / self.rotary_dim", "device=t.device) / self.head_dim")],
    "scale-missing": [(" / self.head_dim**0.5", "")],
    "scale-by-model-width": [("self.head_dim**0.5", "self.embed_dim**0.5")],
    "scale-inverted": [("/ self.head_dim**0.5", "* self.head_dim**0.5")],
    "scale-twice": [("q = self.rotate(q, position)", "q = self.rotate(q, position) / self.head_dim**0.5")],
    "scale-after-softmax": [(" / self.head_dim**0.5", ""), (WEIGHTS, WEIGHTS + " / self.head_dim**0.5")],
    "scale-other-constant": [("self.head_dim**0.5", "self.rotary_dim**0.5")],
    "causal-strict": [
        (
            "keys, values = cache.append(k, v)",
            "keys, values = cache.keys, cache.values\n        cache.append(k, v)\n"
            "        if keys is None:\n            return self.out_proj(torch.zeros_like(token))",
        ),
    ],
    "softmax-over-heads-or-batch": [("softmax(dim=-1)", "softmax(dim=1)")],
    "softmax-low-precision": [(WEIGHTS, "weights = scores.half().softmax(dim=-1).to(values.dtype)")],
    "weights-times-key": [("weights @ values", "weights @ keys")],
    "output-projection-missing": [
        (
            "self.out_proj(context.transpose(1, 2).reshape(batch, 1, self.embed_dim))",
            "context.transpose(1, 2).reshape(batch, 1, self.embed_dim)",
        )
    ],
}
MORE_FAULTS: dict[str, Edits] = {
    "rope-missing: position never advances": [("position = len(cache)", "position = 0")],
    "rope-partial-ignored: dims dropped in the constructor": [
        ("self.rotary_dim = rotary_dim", "self.rotary_dim = self.head_dim")
    ],
    "rope-sign: queries and keys": [
        (
            "even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()",
            "even * angle.cos() + odd * angle.sin(), odd * angle.cos() - even * angle.sin()",
        ),
    ],
    "cache-empty-slots: a zero key in front": [
        (
            "self.keys, self.values = key, value",
            "self.keys = torch.cat([torch.zeros_like(key), key], dim=2)\n"
            "            self.values = torch.cat([torch.zeros_like(value), value], dim=2)",
        ),
        ("0 if self.keys is None else self.keys.size(2)", "0 if self.keys is None else self.keys.size(2) - 1"),
    ],
    "cache-slot-overwritten: value of the newest": [
        (
            "self.values = torch.cat([self.values, value], dim=2)",
            "self.values = torch.cat([value, value.expand_as(self.values)], dim=2)",
        ),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("rope-layout", "scale-missing"),
    ("rope-partial-ignored", "value-is-key"),
    ("rope-sign", "output-projection-missing"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "keys kept unrotated": [
        ("        k = self.rotate(k, position)\n", ""),
        (
            "keys, values = cache.append(k, v)",
            "keys, values = cache.append(k, v)\n        keys = torch.cat(\n"
            "            [self.rotate(key, j) for j, key in enumerate(keys.split(1, dim=2))], dim=2\n        )",
        ),
    ],
    "newest first": [
        ("torch.cat([self.keys, key], dim=2)", "torch.cat([key, self.keys], dim=2)"),
        ("torch.cat([self.values, value], dim=2)", "torch.cat([value, self.values], dim=2)"),
    ],
    "position one more on both": [("position = len(cache)", "position = len(cache) + 1")],
    "scale on the query": [
        (" / self.head_dim**0.5", ""),
        ("q = self.rotate(q, position)", "q = self.rotate(q, position) / self.head_dim**0.5"),
    ],
    "sdpa": [
        (SCORES, ""),
        (WEIGHTS, ""),
        ("weights @ values", "nn.functional.scaled_dot_product_attention(q, keys, values)"),
    ],
    "float32 softmax": [(WEIGHTS, "weights = scores.float().softmax(dim=-1).to(values.dtype)")],
    "merge by flatten of one token": [
        ("context.transpose(1, 2).reshape(batch, 1, self.embed_dim)", "context.reshape(batch, 1, self.embed_dim)")
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs on two batches."""
    return module_outputs(namespace["StreamingCausalAttention"]())
