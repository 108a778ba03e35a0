import math

import torch


def causal_mask(n):
    return torch.tril(torch.ones(n, n, dtype=torch.bool))


def scores_of(q, k):
    return q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))


embeddings = torch.nn.Embedding(20, 6)
ids = torch.tensor([3, 1, 4, 1, 5])
x = embeddings(ids) + torch.nn.Embedding(5, 6)(torch.arange(5))
to_q, to_k, to_v = (torch.nn.Linear(6, 4) for _ in range(3))
q, k, v = to_q(x), to_k(x), to_v(x)
s = scores_of(q, k)
s[~causal_mask(5)] = -math.inf
p = torch.softmax(s, dim=-1)
y = p @ v
