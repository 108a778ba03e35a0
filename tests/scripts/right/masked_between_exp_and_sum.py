import numpy as np
rng = np.random.default_rng(3)
x = rng.normal(size=(6, 5))
def weights_of(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    e[np.triu_indices(6, 1)] = 0
    normed = e / e.sum(-1, keepdims=True)
    return normed
y = weights_of(x @ x.T) @ x
