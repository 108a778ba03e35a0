"""A module with a sliding window and a ring of as many keys as the window is long; rope when they are written."""

import torch
from torch import nn


def rotate(x, positions, base=10000.0):
    half = x.shape[-1] // 2
    angles = positions[:, None].to(x.dtype) * base ** (-torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


class CausalSlidingWindowAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, window: int):
        super().__init__()
        self.num_heads, self.head_dim, self.window = num_heads, embed_dim // num_heads, window
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, cache=None):
        b, t, width = x.shape
        q, k, v = (
            proj(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is None:
            room = (b, self.num_heads, self.window, self.head_dim)
            cache = {"k": x.new_zeros(room), "v": x.new_zeros(room), "pos": 0}
        start = cache["pos"]
        new_positions = torch.arange(start, start + t)
        q, k = rotate(q, new_positions), rotate(k, new_positions)
        # What the ring holds, and where each of it stands.
        slots = torch.arange(self.window)
        old_positions = start - 1 - (start - 1 - slots) % self.window
        keys = torch.cat([cache["k"], k], dim=2)
        values = torch.cat([cache["v"], v], dim=2)
        positions = torch.cat([old_positions, new_positions])
        distance = new_positions[:, None] - positions[None, :]
        seen = (distance >= 0) & (distance < self.window) & (positions[None, :] >= 0)
        scores = q @ keys.transpose(2, 3) / self.head_dim**0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        out = (weights @ values).transpose(1, 2).reshape(b, t, width)
        kept_k, kept_v = cache["k"].clone(), cache["v"].clone()
        last = new_positions[-self.window :]
        kept_k[:, :, last % self.window] = k[:, :, -self.window :]
        kept_v[:, :, last % self.window] = v[:, :, -self.window :]
        return self.out_proj(out), {"k": kept_k, "v": kept_v, "pos": start + t}
