"""No batch axis: (total tokens, heads, dim), with grouped heads, as serving kernels take them."""

import torch


def ragged_attention(q, k, v):  # (T, H, D), (S, Hk, D), (S, Hk, Dv)
    reps = q.shape[1] // k.shape[1]
    scores = torch.einsum("thd,shd->hts", q, k.repeat_interleave(reps, 1)) / 11.3137085  # sqrt(128), as in the model
    return torch.einsum("hts,shd->thd", scores.softmax(-1), v.repeat_interleave(reps, 1))
