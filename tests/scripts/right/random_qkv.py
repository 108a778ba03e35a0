import torch

q = torch.randn(7, 16)
k = torch.randn(7, 16)
v = torch.randn(7, 16)
attn = torch.softmax((q @ k.T) / 16**0.5, dim=-1)
out = attn @ v
