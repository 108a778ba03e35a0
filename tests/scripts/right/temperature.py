import torch
x = torch.randn(5, 4)
temperature = 0.7
w = torch.softmax(x @ x.T / temperature, dim=-1)
y = w @ x
