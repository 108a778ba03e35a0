import torch
import torch.nn as nn

torch.manual_seed(8)
print("loading")
class Embed(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.tok = nn.Embedding(n, d)
        self.pos = nn.Parameter(torch.randn(10, d))
    def forward(self, ids):
        return self.tok(ids) + self.pos[: ids.shape[1]]

emb = Embed(50, 6)
ids = torch.tensor([[3, 7, 1, 9, 4]])
x = emb(ids)
class Head(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.q = nn.Linear(d_in, d_out, bias=False)
        self.k = nn.Linear(d_in, d_out, bias=False)
        self.v = nn.Linear(d_in, d_out, bias=False)
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = q @ k.transpose(1, 2) / k.shape[-1] ** 0.5
        m = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        s = s.masked_fill(m, -torch.inf)
        return torch.softmax(s, dim=-1) @ v
head = Head(6, 4)
out = head(x)
y = out @ out.transpose(1, 2)
print(out)
