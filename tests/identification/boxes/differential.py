"""Differential transformer: two softmaxes over the two halves of each head, one taken off the other."""

import torch

LAMBDA = 0.35


def differential_attention(q, k, v):
    (q1, q2), (k1, k2) = q.chunk(2, dim=-1), k.chunk(2, dim=-1)
    scaling = q1.size(-1) ** -0.5
    mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    a1 = (q1 @ k1.mT * scaling).masked_fill(~mask, float("-inf")).softmax(-1)
    a2 = (q2 @ k2.mT * scaling).masked_fill(~mask, float("-inf")).softmax(-1)
    return (a1 - LAMBDA * a2) @ v
