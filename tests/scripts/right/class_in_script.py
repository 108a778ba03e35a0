import torch, torch.nn as nn
class Head(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.q = nn.Linear(d_in, d_out, bias=False)
        self.k = nn.Linear(d_in, d_out, bias=False)
        self.v = nn.Linear(d_in, d_out, bias=False)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = q @ k.transpose(-2, -1) / k.shape[-1]**0.5
        return torch.softmax(s, dim=-1) @ v
x = torch.randn(2, 5, 6)
heads = nn.ModuleList([Head(6, 3) for _ in range(2)])
out = torch.cat([h(x) for h in heads], dim=-1)
check = out @ torch.eye(6)
