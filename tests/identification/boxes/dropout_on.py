"""Attention dropout, written with the functional form, which is on unless it is told."""

import torch
from torch.nn import functional as F


def attention(query, key, value):
    p_attn = torch.softmax(query @ key.transpose(-2, -1) / query.size(-1) ** 0.5, dim=-1)
    return F.dropout(p_attn, 0.1) @ value
