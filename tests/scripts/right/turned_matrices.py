import torch
torch.manual_seed(0)
x = torch.randn(5, 7)
U_q, U_k = torch.randn(3, 7), torch.randn(7, 3)
W_v = torch.randn(7, 7)
q = x @ U_q.T
k = x @ U_k
v = torch.einsum("ti,oi->to", x, W_v)
key_3 = k[2]
column = q @ key_3
scores = q @ k.T / 3 ** 0.5
w = scores.softmax(-1)
out = w @ v
