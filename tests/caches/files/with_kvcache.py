"""A function in the taste of flash-attention's: new keys and values are written into caches that are handed over."""

import torch


def attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens, causal=True):
    """q (batch, seqlen, heads, head_dim); k_cache, v_cache, k and v (batch, seqlen, kv_heads, head_dim)."""
    batch, new, heads, dim = q.shape
    group = heads // k.shape[2]
    outputs = []
    for b in range(batch):
        held = int(cache_seqlens[b])
        k_cache[b, held : held + new] = k[b]
        v_cache[b, held : held + new] = v[b]
        keys = k_cache[b, : held + new].repeat_interleave(group, dim=1)
        values = v_cache[b, : held + new].repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[b], keys) / dim**0.5
        if causal:
            seen = torch.ones(new, held + new, dtype=torch.bool).tril(held)
            scores = scores.masked_fill(~seen, float("-inf"))
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
    return torch.stack(outputs)
