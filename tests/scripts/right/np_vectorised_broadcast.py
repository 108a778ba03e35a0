import numpy as np
x = np.random.default_rng(1).normal(size=(4, 3))
s = (x[:, None, :] * x[None, :, :]).sum(-1)
p = np.exp(s); p = p / p.sum(1)[:, None]
c = (p[:, :, None] * x[None, :, :]).sum(1)
