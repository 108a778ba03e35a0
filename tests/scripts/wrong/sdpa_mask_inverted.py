# causal-inverted in line 9
import torch
import torch.nn.functional as F
torch.manual_seed(2)
q = torch.randn(2, 3, 5, 4)
k = torch.randn(2, 3, 5, 4)
v = torch.randn(2, 3, 5, 4)
mask = torch.ones(5, 5, dtype=torch.bool).tril()
out = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)
by_hand = torch.softmax((q @ k.mT / 2).masked_fill(~mask, -torch.inf), -1) @ v
print(torch.allclose(out, by_hand, atol=1e-6))
