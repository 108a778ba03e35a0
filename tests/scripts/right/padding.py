import torch
x = torch.randn(2, 5, 4)
lengths = torch.tensor([5, 3])
pad = torch.arange(5)[None, :] >= lengths[:, None]
s = x @ x.transpose(1, 2)
s = s.masked_fill(pad[:, None, :], float("-inf"))
w = torch.softmax(s, dim=-1)
y = w @ x
