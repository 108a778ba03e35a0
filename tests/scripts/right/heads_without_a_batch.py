import torch
torch.manual_seed(3)
tokens, heads, width = 6, 2, 4
x = torch.randn(tokens, heads * width)
w_q, w_k, w_v = (torch.randn(heads * width, heads * width) / 3 for _ in range(3))
q = (x @ w_q).view(tokens, heads, width).transpose(0, 1)
k = (x @ w_k).view(tokens, heads, width).transpose(0, 1)
v = (x @ w_v).view(tokens, heads, width).transpose(0, 1)
scores = torch.bmm(q, k.transpose(1, 2)) / width**0.5
scores = scores.masked_fill(torch.tril(torch.ones(tokens, tokens)) == 0, float("-inf"))
weights = torch.softmax(scores, dim=-1)
context = torch.bmm(weights, v).transpose(0, 1).reshape(tokens, heads * width)
