import torch

def scores_of(queries, keys):
    return queries @ keys.transpose(-2, -1)

def causal(scores):
    n = scores.shape[-1]
    hidden = torch.ones(n, n).triu(diagonal=1).bool()
    return scores.masked_fill(hidden, -torch.inf)

def weights_of(scores):
    e = torch.exp(scores)
    return e / e.sum(dim=-1, keepdim=True)

torch.manual_seed(3)
x = torch.randn(6, 8)
wq, wk, wv = torch.randn(8, 5), torch.randn(8, 5), torch.randn(8, 5)
q, k, v = x @ wq, x @ wk, x @ wv
s = scores_of(q, k) / 5 ** 0.5
context = weights_of(causal(s)) @ v
