"""A module with alibi whose cache is a dict that it fills in place."""

import torch
from torch import nn


class CausalAlibiAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def slopes(self):
        power = 2 ** (self.num_heads.bit_length() - 1)
        first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        between = [2 ** (-4 * (2 * i + 1) / power) for i in range(self.num_heads - power)]
        return torch.tensor(first + between)[:, None, None]

    def forward(self, x, cache: dict | None = None):
        b, t, width = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        past = 0
        if cache is not None:
            if "k" in cache:
                past = cache["k"].shape[2]
                k = torch.cat([cache["k"], k], dim=2)
                v = torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        query_at = torch.arange(past, past + t)[:, None]
        key_at = torch.arange(k.shape[2])[None, :]
        bias = -self.slopes() * (query_at - key_at).abs()
        seen = key_at <= query_at
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        scores = scores + bias
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, width))
