import torch, math
torch.manual_seed(0)
B, N, D, H = 1, 7, 12, 3
x = torch.randn(B, N, D)
w = torch.randn(3 * D, D) / math.sqrt(D)
qkv = torch.nn.functional.linear(x, w).reshape(B, N, 3, H, D // H)
q, k, v = qkv.unbind(2)
q, k, v = [t.transpose(1, 2) for t in (q, k, v)]
attn = (q * (D // H) ** -0.5) @ k.transpose(-2, -1)
attn = attn.softmax(dim=-1)
o = (attn @ v).transpose(1, 2).flatten(2)
