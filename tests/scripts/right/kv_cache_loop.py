import torch
torch.manual_seed(0)
x = torch.randn(5, 4); Wq, Wk, Wv = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4)
ks, vs, outs = [], [], []
for t in range(5):
    q = x[t] @ Wq
    ks.append(x[t] @ Wk); vs.append(x[t] @ Wv)
    K, V = torch.stack(ks), torch.stack(vs)
    w = torch.softmax(K @ q / 2, dim=0)
    outs.append(w @ V)
y = torch.stack(outs)
Q, K, V = x @ Wq, x @ Wk, x @ Wv
s = (Q @ K.T / 2).masked_fill(torch.triu(torch.ones(5, 5), 1) == 1, -torch.inf)
full = torch.softmax(s, -1) @ V
assert torch.allclose(y, full, atol=1e-5)
