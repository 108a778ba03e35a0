"""Key/value heads are copied one after the other until there are enough."""

import torch


def gqa(q, k, v):
    times = q.shape[1] // k.shape[1]
    k, v = torch.cat([k] * times, dim=1), torch.cat([v] * times, dim=1)
    scores = torch.baddbmm(
        torch.zeros((), dtype=q.dtype), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=q.shape[-1] ** -0.5
    )
    return (scores.softmax(-1) @ v.flatten(0, 1)).unflatten(0, q.shape[:2])
