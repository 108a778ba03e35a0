import torch

x = torch.randn(4, 3)
contexts = []
for query in x:
    scores = torch.stack([query @ key for key in x])
    weights = torch.softmax(scores, dim=0)
    contexts.append(sum(w * value for w, value in zip(weights, x)))
all_contexts = torch.stack(contexts)
