# softmax-over-queries in line 10
import numpy as np
np.random.seed(1)
x = np.random.randn(5, 4)
Wq = np.random.randn(4, 4); Wk = np.random.randn(4, 4); Wv = np.random.randn(4, 4)
q, k, v = x @ Wq, x @ Wk, x @ Wv
scores = np.einsum('id,jd->ij', q, k) / np.sqrt(4)
causal = np.triu(np.ones((5, 5)), k=1) * -1e9
weights = np.exp(scores + causal)
weights /= weights.sum(axis=0, keepdims=True)
out = np.einsum('ij,jd->id', weights, v)
