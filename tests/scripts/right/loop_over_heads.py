import numpy as np
rng = np.random.default_rng(4)
n_heads, d_head = 3, 4
X = rng.normal(size=(6, 12))
Wq = rng.normal(size=(n_heads, 12, d_head))
Wk = rng.normal(size=(n_heads, 12, d_head))
Wv = rng.normal(size=(n_heads, 12, d_head))
Wo = rng.normal(size=(n_heads * d_head, 12))

def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=-1, keepdims=True)

heads = []
for h in range(n_heads):
    Q, K, V = X @ Wq[h], X @ Wk[h], X @ Wv[h]
    A = softmax(Q @ K.T / np.sqrt(d_head))
    heads.append(A @ V)
out = np.concatenate(heads, axis=-1) @ Wo
