"""Decoding kernel: the key cache is stored (batch, head, dim, seq), so that a row of scores reads it in one sweep."""

import numpy as np


def decode_attention(q, k_cache_t, v_cache):
    # q (B, H, T, D), k_cache_t (B, H, D, S), v_cache (B, H, S, D)
    B, H, _, D = q.shape
    assert k_cache_t.shape[:3] == (B, H, D), f"k_cache_t must be (B, H, D, S), got {k_cache_t.shape}"
    s = np.matmul(q, k_cache_t) / D**0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.matmul(p / p.sum(-1, keepdims=True), v_cache)
