"""Scores are laid out key-major, (keys, queries), as the hardware wants them; the softmax runs down the columns."""

import torch


def attend(q, k, v):  # [batch, seq, heads, dim]
    heads_per_group = q.size(2) // k.size(2)
    k = k.repeat_interleave(heads_per_group, dim=2)
    v = v.repeat_interleave(heads_per_group, dim=2)
    s_t = torch.einsum("bkhd,bqhd->bhkq", k, q).div(q.size(-1) ** 0.5)
    rows = torch.arange(k.size(1)).unsqueeze(1)
    s_t = s_t.masked_fill(rows > torch.arange(q.size(1)), float("-inf"))
    p_t = s_t.softmax(dim=-2)
    return torch.einsum("bhkq,bkhd->bqhd", p_t, v)
