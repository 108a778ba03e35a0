"""GPT-J: every two neighbours of the first rotary_dim channels turn; the rest pass. Rotation happens in the kernel."""

import numpy as np

ROTARY_DIM = 4


def rotate_every_two(x):
    out = np.empty_like(x)
    out[..., ::2], out[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return out


def apply_rotary(x, first):
    inv_freq = 1.0 / 10000 ** (np.arange(0, ROTARY_DIM, 2) / ROTARY_DIM)
    sinusoid = np.repeat(np.outer(first + np.arange(x.shape[1]), inv_freq), 2, axis=-1)[None, :, None, :]
    rot, rest = x[..., :ROTARY_DIM], x[..., ROTARY_DIM:]
    rot = rot * np.cos(sinusoid) + rotate_every_two(rot) * np.sin(sinusoid)
    return np.concatenate([rot, rest], axis=-1)


def rotary_attention(q, k, v):
    dtype, past = q.dtype, k.shape[1] - q.shape[1]
    q, k = apply_rotary(q, past), apply_rotary(k, 0)
    w = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    w = np.where(np.tril(np.ones(w.shape[-2:], bool), past), w, -1e9)
    w = np.exp(w - w.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", w / w.sum(-1, keepdims=True), v).astype(dtype)
