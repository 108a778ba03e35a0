"""Grouped heads without copies: queries are viewed as (kv head, group). Sliding window of four, newest query last."""

import torch

SLIDING_WINDOW = 4


def grouped_sliding_window(xq, xk, xv):
    bsz, n_q, n_heads, hd = xq.shape
    n_kv, groups = xk.shape[1], n_heads // xk.shape[2]
    xq = xq.view(bsz, n_q, xk.shape[2], groups, hd)
    att = torch.einsum("bqngd,bknd->bngqk", xq, xk) * hd**-0.5
    q_pos = torch.arange(n_kv - n_q, n_kv).view(-1, 1)
    k_pos = torch.arange(n_kv)
    visible = (k_pos <= q_pos) & (k_pos > q_pos - SLIDING_WINDOW)
    att = att.masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num()
    return torch.einsum("bngqk,bknd->bqngd", att, xv).reshape(bsz, n_q, n_heads, -1)
