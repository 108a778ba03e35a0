"""minGPT's buffer: a square causal mask, cut to the length of the text. Queries and keys come from one text only."""

import math

import torch

BLOCK_SIZE = 64
bias = torch.tril(torch.ones(BLOCK_SIZE, BLOCK_SIZE)).view(1, 1, BLOCK_SIZE, BLOCK_SIZE)


def causal_self_attention(q, k, v):
    T = q.size(2)
    assert k.size(2) == T, "self-attention: as many keys as queries"
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(bias[:, :, :T, :T] == 0, float("-inf"))
    return att.softmax(dim=-1) @ v
