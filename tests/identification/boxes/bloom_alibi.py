"""Bloom: alibi is built from key positions alone, since the query's share is the same for a whole row."""

import math

import torch


def build_alibi(num_heads, key_len, dtype):
    closest = 2 ** math.floor(math.log2(num_heads))
    base = 2 ** (-(2 ** -(math.log2(closest) - 3)))
    slopes = [base**p for p in range(1, closest + 1)]
    if closest != num_heads:
        extra = 2 ** (-(2 ** -(math.log2(2 * closest) - 3)))
        slopes += [extra**p for p in range(1, 2 * (num_heads - closest), 2)]
    return torch.tensor(slopes, dtype=dtype)[:, None, None] * torch.arange(key_len, dtype=dtype)


def bloom_attention(query_layer, key_layer, value_layer):
    q_len, kv_len = query_layer.shape[2], key_layer.shape[2]
    alibi = build_alibi(query_layer.shape[1], kv_len, query_layer.dtype)
    scores = torch.matmul(query_layer, key_layer.transpose(-1, -2)) * (1 / math.sqrt(query_layer.shape[-1])) + alibi
    future = torch.ones(q_len, kv_len, dtype=torch.bool).triu(kv_len - q_len + 1)
    return torch.matmul(scores.masked_fill(future, torch.finfo(scores.dtype).min).softmax(-1), value_layer)
