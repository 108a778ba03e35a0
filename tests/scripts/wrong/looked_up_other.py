# other-token in line 8
import numpy as np

rng = np.random.default_rng(4)
sentence = rng.normal(size=(8, 5))[[7, 2, 5, 0, 3, 6]]
W_q, W_k, W_v = (rng.normal(size=(5, 3)) for _ in range(3))
query_2 = sentence[1] @ W_q
query_3 = sentence[3] @ W_q
keys, values = sentence @ W_k, sentence @ W_v
scores_3 = keys @ query_3 / 3**0.5
weights_3 = np.exp(scores_3) / np.exp(scores_3).sum()
context_3 = weights_3 @ values
