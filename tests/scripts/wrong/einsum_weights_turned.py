# weights-transposed in line 15
import torch
torch.manual_seed(5)
b, t, h, d = 2, 5, 3, 4
x = torch.randn(b, t, h * d)
wq = torch.randn(h * d, h, d)
wk = torch.randn(h * d, h, d)
wv = torch.randn(h * d, h, d)
wo = torch.randn(h, d, h * d)
q = torch.einsum("btm,mhd->bthd", x, wq)
k = torch.einsum("btm,mhd->bthd", x, wk)
v = torch.einsum("btm,mhd->bthd", x, wv)
logits = torch.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5
probs = torch.softmax(logits, dim=-1)
ctx = torch.einsum("bhkq,bkhd->bqhd", probs, v)
y = torch.einsum("bqhd,hdm->bqm", ctx, wo)
