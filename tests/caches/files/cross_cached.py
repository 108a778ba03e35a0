"""A cross attention whose cache holds the keys and values of the other sequence, which is there from the beginning."""

from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)
        self.o = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.view(x.shape[0], -1, self.n_heads, self.head_dim).transpose(1, 2)

    def forward(self, x, context, kv_cache=None):
        b, t, width = x.shape
        q = self.split(self.q(x))
        k, v = (self.split(self.k(context)), self.split(self.v(context))) if kv_cache is None else kv_cache
        weights = (q @ k.transpose(-1, -2) / self.head_dim**0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(b, t, width)), (k, v)
