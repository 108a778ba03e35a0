"""Sparse transformer, strided: the last four tokens, and before them every fourth."""

import numpy as np

STRIDE = 4


def strided_attention(q, k, v):
    i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None, :]
    pattern = (j <= i) & ((i - j < STRIDE) | ((i - j) % STRIDE == 0))
    logits = np.where(pattern, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    logits -= logits.max(-1, keepdims=True)
    probs = np.exp(logits)
    return probs / probs.sum(-1, keepdims=True) @ v
