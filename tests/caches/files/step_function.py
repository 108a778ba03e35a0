"""A function of new queries, keys and values and a dict that holds the old ones, in NumPy."""

import numpy as np


def decode_step(query, key, value, cache):
    """query (batch, heads, tokens, dim), key, value (batch, kv_heads, tokens, dim); causal; gives output and cache."""
    if "k" in cache:
        key = np.concatenate([cache["k"], key], axis=2)
        value = np.concatenate([cache["v"], value], axis=2)
    new_cache = {"k": key, "v": value}
    group = query.shape[1] // key.shape[1]
    k, v = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    scores = query @ np.swapaxes(k, -1, -2) / np.sqrt(query.shape[-1])
    q_len, k_len = scores.shape[-2:]
    hidden = np.triu(np.ones((q_len, k_len), dtype=bool), k=k_len - q_len + 1)
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v, new_cache
