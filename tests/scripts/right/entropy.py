import torch
x = torch.randn(5, 4)
s = x @ x.T
w = torch.softmax(s, dim=-1)
y = w @ x
col = w.mean(0); sim = y @ y.T; d = (y - x).norm(dim=-1)
top = w.argmax(-1); srt = torch.sort(w, dim=-1).values
swapped = torch.softmax(s, dim=0)
print(swapped.sum(0), swapped.sum(1))
