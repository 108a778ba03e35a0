import numpy as np

rng = np.random.default_rng(4)
words = ["to", "be", "or", "not", "to", "be"]
places = [7, 2, 5, 0, 7, 2]
X = rng.normal(size=(8, 5))[places]
W_query, W_key, W_value = (rng.normal(size=(5, 3)) for _ in range(3))
x_3 = X[2]
query_3 = x_3 @ W_query
keys, values = X @ W_key, X @ W_value
scores_3 = keys @ query_3 / np.sqrt(3)
weights_3 = np.exp(scores_3) / np.exp(scores_3).sum()
context_3 = weights_3 @ values

# the same sentence from its end, and in another order
for sentence in (X[::-1], np.flip(X, axis=0), X[[3, 0, 5, 1]], np.take(X, [4, 3, 5], axis=0), rng.permutation(X)):
    x_2 = sentence[1]
    scores_2 = (sentence @ W_key) @ (W_query.T @ x_2) / np.sqrt(3)
    weights_2 = np.exp(scores_2) / np.exp(scores_2).sum()
    context_2 = weights_2 @ (sentence @ W_value)
