import torch
n, d = 5, 4
x = torch.randn(n, d); Wq, Wk, Wv = torch.randn(d, d), torch.randn(d, d), torch.randn(d, d)
q, k, v = x @ Wq, x @ Wk, x @ Wv
f = 10000 ** (-torch.arange(0, d, 2) / d)
a = torch.arange(n)[:, None] * f
def rot(t):
    t1, t2 = t[..., 0::2], t[..., 1::2]
    return torch.stack((t1 * a.cos() - t2 * a.sin(), t1 * a.sin() + t2 * a.cos()), dim=-1).flatten(-2)
q, k = rot(q), rot(k)
w = torch.softmax(q @ k.T / d**0.5, dim=-1)
y = w @ v
