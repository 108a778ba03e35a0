"""softmax1: one is added to the denominator, so that a head may decline to attend."""

import torch


def softmax_one(x, dim=-1):
    shift = x.max(dim=dim, keepdim=True).values.clamp_min(0)
    e = torch.exp(x - shift)
    return e / (torch.exp(-shift) + e.sum(dim=dim, keepdim=True))


def quiet_attention(query, key, value):
    n = query.size(-2)
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    scores = scores + torch.full((n, key.size(-2)), float("-inf"), dtype=scores.dtype).triu(1)
    return softmax_one(scores) @ value
