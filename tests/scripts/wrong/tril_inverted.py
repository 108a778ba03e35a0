# causal-inverted in line 6
import torch, torch.nn.functional as F
q, k, v = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
mask = torch.ones(6, 6, dtype=torch.bool).tril()
attn = (q @ k.transpose(-2, -1)) * (4 ** -0.5)
attn = attn.masked_fill(mask, -float('inf')).softmax(-1)
mine = attn @ v
print(mine - F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
