import torch

torch.manual_seed(0)
batch = torch.randn(2, 5, 4)
W_q, W_k, W_v = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
q, k, v = batch @ W_q, batch @ W_k, batch @ W_v
scores = torch.bmm(q, k.transpose(1, 2)) / 4**0.5
weights = scores.softmax(-1)
out = torch.bmm(weights, v)
# one sequence alone gives the same
alone = torch.softmax(q[0] @ k[0].T / 2, -1) @ v[0]
assert torch.allclose(out[0], alone, atol=1e-5)
