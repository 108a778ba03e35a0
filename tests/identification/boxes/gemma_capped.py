"""Gemma 2: query_pre_attn_scalar in place of head_dim, logits capped at 50 before the mask."""

import torch

QUERY_PRE_ATTN_SCALAR = 24
ATTN_LOGIT_SOFTCAPPING = 50.0


def capped(query_states, key_states, value_states):
    n_rep = query_states.shape[1] // key_states.shape[1]
    key_states = key_states[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)
    value_states = value_states[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)
    w = torch.matmul(query_states * QUERY_PRE_ATTN_SCALAR**-0.5, key_states.mT)
    w = torch.tanh(w / ATTN_LOGIT_SOFTCAPPING) * ATTN_LOGIT_SOFTCAPPING
    w = w.masked_fill(torch.ones_like(w, dtype=torch.bool).triu(1), -2.3819763e38)
    return torch.matmul(torch.softmax(w, dim=-1), value_states)
