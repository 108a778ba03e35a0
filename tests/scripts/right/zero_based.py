import torch
inputs = torch.rand(4, 3)
x_0, x_1 = inputs[0], inputs[1]
scores_1 = inputs @ x_1
weights_1 = torch.softmax(scores_1, 0)
context_1 = weights_1 @ inputs
