"""A prior on how useful each cache slot is, per head, is added to its logit."""

import numpy as np

SLOT_PRIOR = np.random.default_rng(11).normal(size=(6, 64))  # stands in for a trained table


def attention_with_prior(Q, K, V):
    logits = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1]) + SLOT_PRIOR[None, :, None, : K.shape[2]]
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True) @ V).astype(Q.dtype)
