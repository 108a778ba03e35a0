# causal-inverted in line 9
import numpy as np
np.random.seed(2)
inputs = np.random.randn(5, 3)
n = len(inputs)
contexts = np.zeros_like(inputs)
for i in range(n):
    scores = np.array([inputs[i] @ inputs[j] for j in range(n)])
    scores[:i] = -np.inf
    weights = np.exp(scores - scores.max())
    weights = weights / weights.sum()
    for j in range(n):
        contexts[i] += weights[j] * inputs[j]
print(contexts)
