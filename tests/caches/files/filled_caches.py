"""A function in the taste of flash-attention's decoding: the caches hold all keys, and are longer than what counts."""

import torch


def attn_with_kvcache(q, k_cache, v_cache, cache_seqlens):
    """q (batch, seqlen, heads, head_dim), caches (batch, seqlen, kv_heads, head_dim)."""
    group = q.shape[2] // k_cache.shape[2]
    keys, values = (cache.repeat_interleave(group, dim=2) for cache in (k_cache, v_cache))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) / q.shape[-1] ** 0.5
    valid = torch.arange(keys.shape[1])[None] < cache_seqlens[:, None]
    scores = scores.masked_fill(~valid[:, None, None], float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values)
