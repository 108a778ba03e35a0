"""The taste of an inference engine: a function for a few new queries against a cache of unrotated keys, rope inside."""

from __future__ import annotations

from typing import Any

from benchmarks.styles._kit import Edits, normal, pairs

SOURCE = '''import torch


def rope(x, positions, base=10000.0):
    """Turn (batch, heads, tokens, head_dim) by its positions; channel c goes with channel c + head_dim / 2."""
    half = x.shape[-1] // 2
    exponent = torch.arange(half, dtype=x.dtype, device=x.device) / half
    theta = positions.to(x.dtype)[:, None] / base**exponent
    cos, sin = torch.cos(theta), torch.sin(theta)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


def decode_attention(query, key_cache, value_cache):
    """Causal attention of the newest queries over everything cached, their own keys and values included.

    query        (batch, num_heads, new_tokens, head_dim), before rope
    key_cache    (batch, num_kv_heads, all_tokens, head_dim), before rope
    value_cache  (batch, num_kv_heads, all_tokens, head_dim)
    """
    batch, num_heads, new_tokens, head_dim = query.shape
    num_kv_heads, all_tokens = key_cache.shape[1], key_cache.shape[2]
    group = num_heads // num_kv_heads

    key_positions = torch.arange(all_tokens, device=query.device)
    query_positions = key_positions[all_tokens - new_tokens :]
    q = rope(query, query_positions)
    k = rope(key_cache, key_positions)

    q = q.reshape(batch, num_kv_heads, group, new_tokens, head_dim)
    scores = torch.einsum("bkgqd,bksd->bkgqs", q, k) / head_dim**0.5
    allowed = key_positions[None, :] <= query_positions[:, None]
    scores = scores.masked_fill(~allowed, float("-inf"))
    weights = scores.softmax(dim=-1)
    out = torch.einsum("bkgqs,bksd->bkgqd", weights, value_cache)
    return out.reshape(batch, num_heads, new_tokens, value_cache.shape[-1])
'''

NAME: str | None = "decode_attention"
OPTIONS: list[str] = [
    "--layout", "BHTD", "--heads", "6", "--kv-heads", "2", "--causal", "--rope", "halves",
]  # fmt: skip
SPEC: dict[str, Any] = {
    "num_heads": 6,
    "num_kv_heads": 2,
    "causal": True,
    "rope": {"pairing": "halves", "base": 10000.0},
    "out_proj": False,
}

SCORES = 'torch.einsum("bkgqd,bksd->bkgqs", q, k) / head_dim**0.5'
FILL = '    scores = scores.masked_fill(~allowed, float("-inf"))\n'
WEIGHTS = "weights = scores.softmax(dim=-1)"
OUT = 'out = torch.einsum("bkgqs,bksd->bkgqd", weights, value_cache)'
GROUPED = "q = q.reshape(batch, num_kv_heads, group, new_tokens, head_dim)"
FINAL = "return out.reshape(batch, num_heads, new_tokens, value_cache.shape[-1])"
ROTATED = "return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)"
HALVES = "x1, x2 = x[..., :half], x[..., half:]"

FAULTS: dict[str, Edits] = {
    "kv-heads-tiled": [
        (GROUPED, "q = q.reshape(batch, group, num_kv_heads, new_tokens, head_dim).transpose(1, 2)"),
        (FINAL, "return out.transpose(1, 2).reshape(batch, num_heads, new_tokens, value_cache.shape[-1])"),
    ],
    "kv-head-divisor": [
        ('bkgqd,bksd->bkgqs", q, k)', 'bkgqd,bksd->bkgqs", q, k[:, :1].expand_as(k))'),
        ("weights, value_cache)", "weights, value_cache[:, :1].expand_as(value_cache))"),
    ],
    "strided-read-as-contiguous": [
        (
            "    batch, num_heads, new_tokens, head_dim = query.shape",
            "    value_cache = torch.empty(0, dtype=value_cache.dtype).set_(\n"
            "        value_cache.untyped_storage(), value_cache.storage_offset(), value_cache.shape\n    )\n"
            "    batch, num_heads, new_tokens, head_dim = query.shape",
        ),
    ],
    "weights-times-key": [("weights, value_cache)", "weights, key_cache)")],
    "rope-layout": [
        (HALVES, "x1, x2 = x[..., 0::2], x[..., 1::2]"),
        (ROTATED, "return torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).flatten(-2)"),
    ],
    "rope-layout-mixed": [
        (
            "cos, sin = torch.cos(theta), torch.sin(theta)",
            "cos = torch.cos(theta).repeat_interleave(2, -1)\n    sin = torch.sin(theta).repeat_interleave(2, -1)",
        ),
        (ROTATED, "return x * cos + torch.cat((-x2, x1), dim=-1) * sin"),
    ],
    "rope-sign": [(ROTATED, "return torch.cat((x1 * cos + x2 * sin, x2 * cos - x1 * sin), dim=-1)")],
    "rope-offset-lost": [("q = rope(query, query_positions)", "q = rope(query, torch.arange(new_tokens))")],
    "rope-offset-shifted": [("q = rope(query, query_positions)", "q = rope(query, query_positions + 1)")],
    "rope-frequencies": [("base=10000.0", "base=100000.0")],
    "scale-missing": [(" / head_dim**0.5", "")],
    "scale-by-model-width": [("head_dim**0.5", "(num_heads * head_dim) ** 0.5")],
    "scale-inverted": [("/ head_dim**0.5", "* head_dim**0.5")],
    "scale-twice": [("head_dim**0.5", "head_dim")],
    "scale-after-softmax": [(" / head_dim**0.5", ""), (WEIGHTS, WEIGHTS + " / head_dim**0.5")],
    "scale-other-constant": [("head_dim**0.5", "all_tokens**0.5")],
    "causal-missing": [(FILL, "")],
    "causal-strict": [("<= query_positions[:, None]", "< query_positions[:, None]")],
    "causal-one-ahead": [("<= query_positions[:, None]", "<= query_positions[:, None] + 1")],
    "causal-inverted": [("<= query_positions[:, None]", ">= query_positions[:, None]")],
    "causal-corner": [("<= query_positions[:, None]", "<= torch.arange(new_tokens)[:, None]")],
    "mask-added-as-number": [(FILL, "    scores = scores + allowed\n")],
    "masked-scores-zeroed": [(FILL, "    scores = scores * allowed\n")],
    "mask-after-softmax": [(FILL, ""), (WEIGHTS, WEIGHTS + " * allowed")],
    "mask-fill-too-small": [('float("-inf")', "-5.0")],
    "softmax-over-queries": [("softmax(dim=-1)", "softmax(dim=-2).nan_to_num()")],
    "softmax-low-precision": [(WEIGHTS, "weights = scores.bfloat16().softmax(dim=-1).to(query.dtype)")],
}
MORE_FAULTS: dict[str, Edits] = {
    "causal-corner: tril": [
        (
            "key_positions[None, :] <= query_positions[:, None]",
            "torch.ones(new_tokens, all_tokens, dtype=torch.bool).tril()",
        )
    ],
    "rope-applied-twice: cached keys": [
        ("k = rope(key_cache, key_positions)", "k = rope(rope(key_cache, key_positions), key_positions)"),
    ],
    "rope-frequencies: whole width": [("device=x.device) / half", "device=x.device) / (2 * half)")],
    "rope-offset-lost: every query at 0": [
        ("q = rope(query, query_positions)", "q = rope(query, query_positions * 0)"),
    ],
}
PAIRS = pairs(
    FAULTS,
    ("rope-offset-lost", "kv-heads-tiled"),
    ("causal-corner", "scale-missing"),
    ("causal-one-ahead", "rope-sign"),
    ("rope-layout", "scale-by-model-width"),
)
RIGHT_VARIANTS: dict[str, Edits] = {
    "heads repeated": [
        (GROUPED, "k = k.repeat_interleave(group, dim=1)\n    v = value_cache.repeat_interleave(group, dim=1)"),
        ("bkgqd,bksd->bkgqs", "bhqd,bhsd->bhqs"),
        (OUT, "out = weights @ v"),
    ],
    "positions relative to the newest token": [
        ("q = rope(query, query_positions)", "q = rope(query, query_positions - all_tokens)"),
        ("k = rope(key_cache, key_positions)", "k = rope(key_cache, key_positions - all_tokens)"),
    ],
    "no mask for a single query": [
        (FILL, "    if new_tokens > 1:\n    " + FILL),
    ],
    "fill -1e4": [('float("-inf")', "-1e4")],
    "keys stored newest first": [
        (
            "key_positions = torch.arange(all_tokens, device=query.device)\n",
            "key_positions = torch.arange(all_tokens, device=query.device)\n"
            "    key_cache, value_cache = key_cache.flip(2), value_cache.flip(2)\n",
        ),
        (
            "k = rope(key_cache, key_positions)",
            "key_positions = key_positions.flip(0)\n    k = rope(key_cache, key_positions)",
        ),
    ],
    "float32 softmax": [(WEIGHTS, "weights = scores.float().softmax(dim=-1).to(query.dtype)")],
    "both turned the other way": [
        (ROTATED, "return torch.cat((x1 * cos + x2 * sin, x2 * cos - x1 * sin), dim=-1)"),
        ("theta = positions.to(x.dtype)[:, None]", "theta = -positions.to(x.dtype)[:, None]"),
    ],
}


def example(namespace: dict[str, Any]) -> list[Any]:
    """Outputs of a prefill, a chunk and one token; one with inputs that are not contiguous."""
    attention = namespace["decode_attention"]
    outputs = []
    for new, total in ((9, 9), (4, 11), (1, 7)):
        q = normal(2, 6, new, 8, seed=new)
        k, v = normal(2, 2, total, 8, seed=total), normal(2, 2, total, 8, seed=total + 1)
        outputs.append(attention(q, k, v))
    sizes = ((5, 6), (8, 2), (8, 2))
    q, k, v = (normal(2, tokens, heads, 8, seed=tokens + heads).transpose(1, 2) for tokens, heads in sizes)
    outputs.append(attention(q, k, v))
    return outputs
