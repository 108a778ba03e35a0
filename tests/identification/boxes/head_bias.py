"""Each head has a learned temperature-like offset on its logits. (It cancels in the softmax; nobody noticed.)"""

import numpy as np

HEAD_BIAS = np.array([0.3, -1.2, 0.05, 2.0, -0.4, 0.9])


def mha(Q, K, V):
    logits = np.einsum("bhid,bhjd->bhij", Q, K) / np.sqrt(Q.shape[-1])
    logits = logits + HEAD_BIAS[None, :, None, None]
    e = np.exp(logits - logits.max(axis=3, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", e / e.sum(axis=3, keepdims=True), V).astype(Q.dtype)
