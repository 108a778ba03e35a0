import torch
inputs = torch.tensor([[0.4, 0.1, 0.8], [0.5, 0.8, 0.6], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
weights = torch.softmax(inputs @ inputs.T, dim=1)
all_ctx = weights @ inputs
# by hand for token 2 (index 1)
ctx_2 = weights[1, 0] * inputs[0] + weights[1, 1] * inputs[1] + weights[1, 2] * inputs[2] + weights[1, 3] * inputs[3]
assert torch.allclose(all_ctx[1], ctx_2)
for i in range(4):
    alone = torch.softmax(inputs[i] @ inputs.T, dim=0) @ inputs
    assert torch.allclose(alone, all_ctx[i], atol=1e-6)
