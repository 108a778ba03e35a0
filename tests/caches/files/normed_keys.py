"""A module whose cache holds keys as they were projected: they are normalised when they are read."""

import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.q_norm = nn.RMSNorm(self.head_dim)
        self.k_norm = nn.RMSNorm(self.head_dim)

    def forward(self, x, cache=None):
        batch, tokens, width = x.shape
        q, k, v = (
            proj(x).view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        raw, past = k, 0
        if cache is None:
            k = self.k_norm(k)
        else:
            past_k, past_v = cache
            past = past_k.size(2)
            raw, v = torch.cat((past_k, raw), dim=2), torch.cat((past_v, v), dim=2)
            k = self.k_norm(torch.cat((past_k, k), dim=2))
        seen = torch.ones(tokens, past + tokens, dtype=torch.bool).tril(past)
        att = self.q_norm(q) @ k.transpose(2, 3) / self.head_dim**0.5
        y = att.masked_fill(~seen, float("-inf")).softmax(dim=-1) @ v
        return self.out_proj(y.transpose(1, 2).reshape(batch, tokens, width)), (raw, v)
