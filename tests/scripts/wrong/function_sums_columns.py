# softmax-over-queries in line 9
import numpy as np

def scores_of(q, k):
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])

def normalise(s):
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)

def mixed(w, v):
    return np.einsum("bij,bjd->bid", w, v)

rs = np.random.RandomState(2)
x = rs.randn(3, 4, 8).astype(np.float32)
wq, wk, wv = rs.randn(8, 5), rs.randn(8, 5), rs.randn(8, 5)
w = normalise(scores_of(x @ wq, x @ wk))
z = mixed(w, x @ wv)
assert np.allclose(w.sum(-1), 1)
