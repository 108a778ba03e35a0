import torch

x = torch.randn(6, 8)
Wq, Wk, Wv = torch.randn(8, 4), torch.randn(8, 4), torch.randn(8, 4)
q = (x @ Wq) * 4**-0.5
k = x @ Wk
v = x @ Wv
w = torch.softmax(q @ k.T, dim=-1)
z = w @ v
