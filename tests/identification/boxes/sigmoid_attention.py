"""Sigmoid attention (Ramapuram et al. 2024): no row sum, and a bias of -log(n) to keep the magnitude."""

import math

import torch


def sigmoid_attention(q, k, v):
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) - math.log(k.shape[-2])
    return torch.sigmoid(logits) @ v
