import numpy as np
x = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
w_key = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
w_query = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
w_value = np.array([[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
keys = x @ w_key
querys = x @ w_query
values = x @ w_value
attn_scores = querys @ keys.T / np.sqrt(3)
def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)
attn = softmax(attn_scores)
weighted_values = values[:, None] * attn.T[:, :, None]
outputs = weighted_values.sum(axis=0)
