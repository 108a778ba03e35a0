import torch
b, n, hq, hk, d = 2, 5, 4, 2, 3
x = torch.randn(b, n, 12)
Wq, Wk, Wv = torch.randn(12, hq*d), torch.randn(12, hk*d), torch.randn(12, hk*d)
q = (x @ Wq).view(b, n, hq, d).transpose(1, 2)
k = (x @ Wk).view(b, n, hk, d).transpose(1, 2)
v = (x @ Wv).view(b, n, hk, d).transpose(1, 2)
k = k.repeat_interleave(hq // hk, dim=1)
v = v.repeat_interleave(hq // hk, dim=1)
w = torch.softmax(q @ k.mT / d**0.5, dim=-1)
o = (w @ v).transpose(1, 2).reshape(b, n, hq*d)
