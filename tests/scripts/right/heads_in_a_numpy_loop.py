import numpy as np
rng = np.random.default_rng(9)
T, H, D = 5, 2, 3
X = rng.standard_normal((T, H * D))
WQ, WK, WV = (rng.standard_normal((H * D, H * D)) for _ in range(3))
Q, K, V = X @ WQ, X @ WK, X @ WV
Q = Q.reshape(T, H, D).transpose(1, 0, 2)
K = K.reshape(T, H, D).transpose(1, 0, 2)
V = V.reshape(T, H, D).transpose(1, 0, 2)
future = np.triu(np.ones((T, T)), 1)
outs = []
for h in range(H):
    logits = Q[h] @ K[h].T / np.sqrt(D)
    logits = logits - 1e9 * future
    logits -= logits.max(axis=1, keepdims=True)
    prob = np.exp(logits)
    prob /= prob.sum(axis=1, keepdims=True)
    outs.append(prob @ V[h])
Y = np.concatenate(outs, axis=1)
