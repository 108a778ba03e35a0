# heads-merged-by-view in line 12
import math, torch
g = torch.Generator().manual_seed(3)
T, H, G, D = 6, 4, 2, 5
q = torch.randn(H, T, D, generator=g)
k = torch.randn(G, T, D, generator=g)
v = torch.randn(G, T, D, generator=g)
k = k.repeat_interleave(H // G, 0)
v = v.repeat_interleave(H // G, 0)
mask = torch.ones(T, T).tril().log()
w = ((q @ k.mT) / math.sqrt(D) + mask).softmax(-1)
y = (w @ v).reshape(T, H * D)
