import numpy as np

rng = np.random.default_rng(42)
X = rng.normal(size=(5, 4))


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


Wq, Wk, Wv = (rng.normal(size=(4, 3)) for _ in range(3))
Q = X @ Wq
K = X @ Wk
V = X @ Wv
S = Q @ K.T / np.sqrt(K.shape[-1])
A = softmax(S)
Z = A @ V
assert np.allclose(A.sum(axis=1), 1)
