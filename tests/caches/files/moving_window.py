"""A module with a window that keeps its own cache and cuts it to what the window needs."""

import torch
from torch import nn


class CausalWindowAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, window: int):
        super().__init__()
        self.num_heads, self.head_dim, self.window = num_heads, embed_dim // num_heads, window
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.clear()

    def clear(self):
        self.keys = self.values = None
        self.seen_tokens = 0

    def forward(self, x, use_cache: bool = False):
        b, t, width = x.shape
        q, k, v = (
            proj(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        start = 0
        if use_cache:
            if self.keys is not None:
                k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
            start = self.seen_tokens
            self.keys, self.values, self.seen_tokens = k, v, start + t
            if start:
                self.keys = self.keys[:, :, -(self.window - 1 + t) :]
                self.values = self.values[:, :, -(self.window - 1 + t) :]
            k, v = self.keys, self.values
        query_at = torch.arange(start, start + t)[:, None]
        key_at = torch.arange(start + t - k.shape[2], start + t)[None, :]
        distance = query_at - key_at
        seen = (distance >= 0) & (distance < self.window)
        scores = q @ k.transpose(2, 3) / self.head_dim**0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(b, t, width))
