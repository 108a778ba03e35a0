# softmax-over-all in line 6
import numpy as np

x = np.array([[1.0, 0.5, 0.2], [0.3, 0.9, 0.1], [0.4, 0.4, 0.8], [0.7, 0.1, 0.6]])
S = x @ x.T
A = np.exp(S) / np.exp(S).sum()
Z = A @ x
