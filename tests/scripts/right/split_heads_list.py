import torch
x = torch.randn(4, 6)
W = torch.randn(6, 6), torch.randn(6, 6), torch.randn(6, 6)
Q, K, V = (x @ w for w in W)
outs = []
for q, k, v in zip(Q.split(3, dim=-1), K.split(3, dim=-1), V.split(3, dim=-1)):
    outs.append(torch.softmax(q @ k.T / 3**0.5, -1) @ v)
y = torch.cat(outs, -1)
