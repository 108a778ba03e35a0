# weights-transposed in line 11
import torch
inputs = torch.rand(5, 3)
W_query, W_key, W_value = torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 2)
q = inputs @ W_query
k = inputs @ W_key
v = inputs @ W_value
attn = torch.softmax(q @ k.T / 2**0.5, dim=-1)
context = []
for i in range(5):
    context.append(attn[:, i] @ v)
context = torch.stack(context)
