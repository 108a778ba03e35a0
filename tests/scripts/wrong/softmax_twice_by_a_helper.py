# softmax-twice in line 20
import numpy as np

rs = np.random.RandomState(0)
B, T, C, D = 2, 5, 9, 4
x = rs.randn(B, T, C)
w_q, w_k, w_v = rs.randn(C, D), rs.randn(C, D), rs.randn(C, D)

def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=-1, keepdims=True)

q = np.einsum("btc,cd->btd", x, w_q)
k = np.einsum("btc,cd->btd", x, w_k)
v = np.einsum("btc,cd->btd", x, w_v)
att = np.einsum("bid,bjd->bij", q, k) / np.sqrt(D)
keep = np.tri(T, dtype=bool)
att = np.where(keep, att, -np.inf)
p = softmax(softmax(att))
y = np.einsum("bij,bjd->bid", p, v)
