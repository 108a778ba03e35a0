# projection-reused in line 10
import torch
torch.manual_seed(4)
E, N, H = 12, 5, 3
x = torch.randn(N, E)
wq, wk, wv, wo = [torch.randn(E, E) * 0.3 for _ in range(4)]
outs = []
for h in range(H):
    sl = slice(h * E // H, (h + 1) * E // H)
    qh, kh, vh = x @ wq[:, sl], x @ wq[:, sl], x @ wv[:, sl]
    att = torch.softmax(torch.einsum("id,jd->ij", qh, kh) / (E // H) ** 0.5, -1)
    outs.append(torch.einsum("ij,jd->id", att, vh))
y = torch.cat(outs, -1) @ wo
