import numpy as np

np.random.seed(0)
x = np.random.randn(4, 6)
n = len(x)
scores = np.zeros((n, n))
for i in range(n):
    for j in range(n):
        scores[i, j] = np.dot(x[i], x[j])
weights = np.exp(scores)
for i in range(n):
    weights[i] = weights[i] / weights[i].sum()
context = np.zeros_like(x)
for i in range(n):
    for j in range(n):
        context[i] += weights[i, j] * x[j]
