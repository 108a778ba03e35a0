# heads-merged-by-view in line 16
import math
import torch
from torch import nn
torch.manual_seed(0)
B, T, C, H = 2, 6, 16, 4
x = torch.randn(B, T, C)
qkv = nn.Linear(C, 3 * C, bias=False)
out = nn.Linear(C, C)
mix = qkv(x).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
q, k, v = mix[0], mix[1], mix[2]
mask = torch.tril(torch.ones(T, T)).bool()
scores = q @ k.transpose(-1, -2) / math.sqrt(C // H)
scores = scores.masked_fill(~mask, float("-inf"))
weights = scores.softmax(dim=-1)
y = (weights @ v).reshape(B, T, C)
y = out(y)
