import torch
x = torch.randn(5, 4); Wq, Wk, Wv = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
q, k, v = x @ Wq, x @ Wk, x @ Wv
s = q @ k.T / 2
s = s - 0.5 * (torch.arange(5)[:, None] - torch.arange(5)[None, :]).abs()
w = torch.softmax(s, dim=-1)
y = w @ v
