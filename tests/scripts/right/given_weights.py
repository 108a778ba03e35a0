import torch

inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
attn_weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]])
context_vecs = attn_weights @ inputs
context_1 = 0.5 * inputs[0] + 0.3 * inputs[1] + 0.2 * inputs[2]
print(context_vecs[0], context_1)
