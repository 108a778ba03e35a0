# causal-strict in line 10
import matplotlib.pyplot as plt
import numpy as np
np.random.seed(7)
tokens = ["I", "like", "green", "tea"]
X = np.random.rand(4, 6)
Wq, Wk, Wv = (np.random.rand(6, 3) for _ in range(3))
Q, K, V = X @ Wq, X @ Wk, X @ Wv
S = Q @ K.T / np.sqrt(K.shape[1])
S[np.triu_indices(4, k=0)] = -np.inf
A = np.exp(S - S.max(axis=1, keepdims=True))
A /= A.sum(axis=1, keepdims=True)
Z = A @ V
fig, ax = plt.subplots()
ax.imshow(A)
ax.set_xticks(range(4), tokens)
plt.show()
