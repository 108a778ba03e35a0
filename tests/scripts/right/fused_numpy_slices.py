import numpy as np
rng = np.random.default_rng(1)
T, D, H = 5, 6, 2
x = rng.standard_normal((T, D))
W = rng.standard_normal((D, 3 * D))
q, k, v = np.split(x @ W, 3, axis=-1)
out = np.zeros((T, D))
d = D // H
for h in range(H):
    s = slice(h * d, (h + 1) * d)
    scores = q[:, s] @ k[:, s].T / np.sqrt(d)
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    out[:, s] = p @ v[:, s]
print(out)
