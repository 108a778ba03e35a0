"""Forward of a tiled kernel, simulated in NumPy. The scale goes into q together with log2(e), so that exp2 will do."""

import numpy as np

BLOCK_M, BLOCK_N = 4, 3
LOG2E = 1.44269504


def flash_fwd(q, k, v):  # (Z, H, N_CTX, D)
    Z, H, N_CTX, D = q.shape
    n_keys = k.shape[2]
    o = np.empty((Z, H, N_CTX, v.shape[-1]), q.dtype)
    q = q * np.asarray(D**-0.5 * LOG2E, q.dtype)
    for z in range(Z):
        for h in range(H):
            hk = h * k.shape[1] // H
            for start_m in range(0, N_CTX, BLOCK_M):
                offs_m = start_m + np.arange(min(BLOCK_M, N_CTX - start_m))
                qi = q[z, h, offs_m]
                m_i = np.full(len(offs_m), -np.inf)
                l_i = np.zeros(len(offs_m))
                acc = np.zeros((len(offs_m), v.shape[-1]))
                hi = min(start_m + BLOCK_M, n_keys)  # nothing to do right of the diagonal
                for start_n in range(0, hi, BLOCK_N):
                    offs_n = start_n + np.arange(min(BLOCK_N, n_keys - start_n))
                    qk = qi @ k[z, hk, offs_n].T
                    qk = np.where(offs_m[:, None] >= offs_n[None, :], qk, -np.inf)
                    m_ij = np.maximum(m_i, qk.max(1))
                    p = np.exp2(qk - m_ij[:, None])
                    alpha = np.exp2(m_i - m_ij)
                    l_i = l_i * alpha + p.sum(1)
                    acc = acc * alpha[:, None] + p @ v[z, hk, offs_n]
                    m_i = m_ij
                o[z, h, offs_m] = acc / l_i[:, None]
    return o
