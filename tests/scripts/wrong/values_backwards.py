# values-in-another-order in line 6
import torch
torch.manual_seed(2)
x = torch.randn(5, 3)
w = torch.softmax(x @ x.T, dim=-1)
y = w @ x.flip(0)
