# transpose-forgotten in line 7
import torch
torch.manual_seed(0)
x = torch.rand(3, 3)
Wq, Wk, Wv = torch.rand(3, 3), torch.rand(3, 3), torch.rand(3, 3)
q, k, v = x @ Wq, x @ Wk, x @ Wv
w = torch.softmax(q @ k / 3**0.5, dim=-1)
z = w @ v
