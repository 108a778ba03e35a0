"""Captures: attention weights, taken from whatever computes or holds them."""
