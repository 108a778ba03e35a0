"""Attention to use: `attend`, which lowers masks onto the kernels that torch has, and says which."""

from qkv.compute.attention import attend as attend
