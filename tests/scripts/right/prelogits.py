import torch
x = torch.randn(6, 8)
x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
Wqkv = torch.randn(8, 24)
q, k, v = (x @ Wqkv).chunk(3, dim=-1)
att = torch.softmax(q @ k.transpose(0, 1) * 8 ** -0.5, dim=1)
out = att @ v
