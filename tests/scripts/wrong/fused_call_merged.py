# heads-merged-by-view in line 9
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
torch.manual_seed(0)
x = torch.randn(2, 7, 32)
Wqkv = torch.nn.Linear(32, 96)
Wo = torch.nn.Linear(32, 32)
q, k, v = [t.unflatten(-1, (4, 8)).transpose(1, 2) for t in Wqkv(x).chunk(3, -1)]
y = Wo(sdpa(q, k, v, is_causal=True).reshape(2, 7, 32))
