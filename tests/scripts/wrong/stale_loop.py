# other-token in line 9
import torch
inputs = torch.rand(5, 3)
contexts = torch.zeros(5, 3)
query = inputs[0]
for i in range(5):
    scores = inputs @ query
    weights = torch.softmax(scores, dim=0)
    contexts[i] = weights @ inputs
