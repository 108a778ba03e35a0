import numpy as np

rng = np.random.default_rng(4)
sentence = rng.normal(size=(6, 5))[[3, 1, 4, 3, 1, 5]]  # two words come twice
W_q, W_k, W_v = (rng.normal(size=(5, 3)) for _ in range(3))
x_5 = sentence[4]
query_5 = x_5 @ W_q
keys, values = sentence @ W_k, sentence @ W_v
scores_5 = keys @ query_5 / 3**0.5
scores_5[5:] = -np.inf  # causal
weights_5 = np.exp(scores_5) / np.exp(scores_5).sum()
context_5 = weights_5 @ values
x_6 = sentence[-1]
context = np.zeros((6, 3))
for i, x in enumerate(sentence):
    scores = keys @ (x @ W_q) / 3**0.5
    scores[i + 1 :] = -np.inf
    weights = np.exp(scores) / np.exp(scores).sum()
    context[i] = weights @ values
