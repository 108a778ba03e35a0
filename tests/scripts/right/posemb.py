import math, torch
torch.manual_seed(0)
tok = torch.nn.Embedding(10, 8)
pos = torch.zeros(6, 8)
for p in range(6):
    for i in range(0, 8, 2):
        pos[p, i] = math.sin(p / 10000 ** (i / 8))
        pos[p, i + 1] = math.cos(p / 10000 ** (i / 8))
ids = torch.randint(0, 10, (6,))
x = tok(ids) + pos
x = torch.nn.functional.layer_norm(x, (8,))
Wq, Wk, Wv = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
Q = x @ Wq; K = x @ Wk; V = x @ Wv
att = torch.softmax((Q @ K.T) / math.sqrt(8), -1)
out = att @ V
res = x + out
