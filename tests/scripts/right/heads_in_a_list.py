import torch

torch.manual_seed(3)
x = torch.randn(5, 6)
outputs = []
for head in range(2):
    Wq, Wk, Wv = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 3)
    q, k, v = x @ Wq, x @ Wk, x @ Wv
    weights = torch.softmax(q @ k.T / 3**0.5, dim=-1)
    outputs.append(weights @ v)
out = torch.cat(outputs, dim=-1)
