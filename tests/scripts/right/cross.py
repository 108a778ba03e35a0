import torch
text = torch.randn(4, 8)
image = torch.randn(6, 8)
Wq, Wk, Wv = (torch.randn(8, 5) for _ in range(3))
q = text @ Wq
k = image @ Wk
v = image @ Wv
scores = q @ k.T / 5**0.5
weights = torch.softmax(scores, dim=-1)
context = weights @ v
