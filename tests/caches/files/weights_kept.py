"""A module without a cache that keeps its last weights to look at: nothing of them is read again."""

from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.calls = 0

    def forward(self, x):
        b, t, width = x.shape
        self.calls += 1
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / self.head_dim**0.5
        self.last = scores.masked_fill(scores.new_ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)
        return self.proj((self.last @ v).transpose(1, 2).reshape(b, t, width))
