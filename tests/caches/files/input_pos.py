"""A module in the taste of gpt-fast: a static cache that is written by position, and a mask over all of its slots."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class KVCache(nn.Module):
    def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
        super().__init__()
        shape = (max_batch_size, n_heads, max_seq_length, head_dim)
        self.register_buffer("k_cache", torch.zeros(shape))
        self.register_buffer("v_cache", torch.zeros(shape))

    def update(self, input_pos, k_val, v_val):
        k_out, v_out = self.k_cache, self.v_cache
        k_out[:, :, input_pos] = k_val
        v_out[:, :, input_pos] = v_val
        return k_out, v_out


class CausalAttention(nn.Module):
    def __init__(self, dim: int, n_head: int, n_local_heads: int, max_batch_size: int = 2, max_seq_length: int = 40):
        super().__init__()
        self.n_head, self.n_local_heads, self.head_dim = n_head, n_local_heads, dim // n_head
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_local_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_local_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.max_batch_size, self.max_seq_length = max_batch_size, max_seq_length
        self.kv_cache = KVCache(max_batch_size, max_seq_length, n_local_heads, self.head_dim)
        self.register_buffer("causal_mask", torch.tril(torch.ones(max_seq_length, max_seq_length, dtype=torch.bool)))

    def forward(self, x: Tensor, input_pos: Tensor) -> Tensor:
        bsz, seqlen, _ = x.shape
        q = self.wq(x).view(bsz, seqlen, self.n_head, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(bsz, seqlen, self.n_local_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(bsz, seqlen, self.n_local_heads, self.head_dim).transpose(1, 2)
        k, v = self.kv_cache.update(input_pos, k, v)
        k = k.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
        v = v.repeat_interleave(self.n_head // self.n_local_heads, dim=1)
        mask = self.causal_mask[None, None, input_pos]
        y = F.scaled_dot_product_attention(q, k[:bsz], v[:bsz], attn_mask=mask)
        return self.wo(y.transpose(1, 2).reshape(bsz, seqlen, -1))
