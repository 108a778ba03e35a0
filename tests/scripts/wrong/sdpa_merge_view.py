# heads-merged-by-view in line 15
import torch
from torch import nn
torch.manual_seed(3)
n_embd, n_head = 8, 2
c_attn = nn.Linear(n_embd, 3 * n_embd)
c_proj = nn.Linear(n_embd, n_embd)
x = torch.rand(3, 4, n_embd)
B, T, C = x.size()
q, k, v = c_attn(x).split(n_embd, dim=2)
k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
y = y.contiguous().view(B, T, C)
y = c_proj(y)
