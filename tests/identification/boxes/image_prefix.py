"""PaliGemma: image tokens come first and are seen by all; text is causal."""

import torch
from torch.nn import functional as F

IMAGE_TOKENS = 4


def prefix_lm_attention(q, k, v):
    causal = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    causal[:, :IMAGE_TOKENS] = True
    return F.scaled_dot_product_attention(q, k, v, attn_mask=causal, enable_gqa=True)
