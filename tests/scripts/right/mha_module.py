import torch
x = torch.randn(1, 5, 8)
mha = torch.nn.MultiheadAttention(8, 2, batch_first=True)
y, w = mha(x, x, x)
s = x[0] @ x[0].T
a = torch.softmax(s, dim=-1)
c = a @ x[0]
