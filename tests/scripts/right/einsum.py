import torch

x = torch.randn(2, 5, 8)
Wq, Wk, Wv = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
q = torch.einsum("btd,de->bte", x, Wq)
k = torch.einsum("btd,de->bte", x, Wk)
v = torch.einsum("btd,de->bte", x, Wv)
scores = torch.einsum("bqd,bkd->bqk", q, k) * 8**-0.5
attention = torch.softmax(scores, dim=2)
out = torch.einsum("bqk,bkd->bqd", attention, v)
