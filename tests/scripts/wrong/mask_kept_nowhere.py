# mask-not-applied in line 15
import torch
import torch.nn.functional as F
torch.manual_seed(7)
emb = torch.randn(7, 10)
Wq = torch.randn(10, 6)
Wk = torch.randn(10, 6)
Wv = torch.randn(10, 4)
Q = emb @ Wq
K = emb @ Wk
V = emb @ Wv
S = Q @ K.t()
S = S / K.size(-1) ** 0.5
m = torch.tril(torch.ones(7, 7)).bool()
S.masked_fill(~m, float("-inf"))
A = F.softmax(S, dim=1)
Z = A @ V
print(Z.shape)
