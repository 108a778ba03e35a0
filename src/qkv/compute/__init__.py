"""Attention to use: `attend`, which lowers masks onto the kernels that torch has, and `plan`, which says how."""

from qkv.compute.attention import attend as attend, plan as plan
from qkv.compute.flex import block_mask as block_mask
from qkv.compute.planning import Plan as Plan
