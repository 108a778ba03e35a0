# softmax-over-all in line 10
import torch
inputs = torch.rand(6, 3)
n = inputs.shape[0]
attn_scores = torch.empty(n, n)
for i, a in enumerate(inputs):
    for j, b in enumerate(inputs):
        attn_scores[i, j] = torch.dot(a, b)
def softmax_naive(x):
    return torch.exp(x) / torch.exp(x).sum()
attn_weights = softmax_naive(attn_scores)
ctx = torch.zeros_like(inputs)
for i in range(n):
    for j in range(n):
        ctx[i] += attn_weights[i, j] * inputs[j]
