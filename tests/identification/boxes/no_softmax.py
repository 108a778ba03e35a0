"""Dot products as weights, divided by how many there are. (The softmax was left for later.)"""

import numpy as np


def attn(q, k, v):
    w = np.einsum("bihd,bjhd->bhij", q, k) / k.shape[1]
    return np.einsum("bhij,bjhd->bihd", w, v)
