"""A module in the taste of GPT-2: a pair of keys and values comes in and goes out with every call."""

import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, block_size=64):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.c_attn = nn.Linear(embed_dim, 3 * embed_dim)
        self.c_proj = nn.Linear(embed_dim, embed_dim)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size, dtype=torch.bool)))

    def forward(self, x, layer_past=None, use_cache=False):
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        past = 0
        if layer_past is not None:
            past_k, past_v = layer_past
            past = past_k.size(2)
            k = torch.cat((past_k, k), dim=2)
            v = torch.cat((past_v, v), dim=2)
        present = (k, v) if use_cache else None
        att = q @ k.transpose(-2, -1) / self.head_dim**0.5
        seen = self.bias[past : past + tokens, : past + tokens]
        att = att.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        y = (att @ v).transpose(1, 2).reshape(batch, tokens, width)
        return self.c_proj(y), present
