# heads-merged-by-view in line 19
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
b, t, d_model, n_heads = 2, 5, 12, 3
head_dim = d_model // n_heads
x = torch.randn(b, t, d_model)
W_q, W_k, W_v = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
W_o = nn.Linear(d_model, d_model, bias=False)
q = W_q(x).view(b, t, n_heads, head_dim).transpose(1, 2)
k = W_k(x).view(b, t, n_heads, head_dim).transpose(1, 2)
v = W_v(x).view(b, t, n_heads, head_dim).transpose(1, 2)
scores = q @ k.transpose(-2, -1) / head_dim**0.5
mask = torch.tril(torch.ones(t, t)).bool()
scores = scores.masked_fill(~mask, float("-inf"))
weights = F.softmax(scores, dim=-1)
context = (weights @ v).view(b, t, d_model)
output = W_o(context)
fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
