"""Sizes: the plan for a call of which only the sizes are known."""

from __future__ import annotations

from typing import Any

import torch

from qkv.compute.attention import plan
from qkv.compute.planning import Plan


def plan_for_sizes(
    *,
    batch: int,
    num_heads: int,
    num_kv_heads: int,
    query_len: int,
    key_len: int,
    head_dim: int,
    value_dim: int,
    dtype: str,
    **options: Any,
) -> Plan:
    """How `attend` would compute a call of these sizes on the CPU. No memory is taken for tensors.

    Args:
        batch: how many sequences there are.
        num_heads: query heads.
        num_kv_heads: key/value heads.
        query_len: how many queries there are.
        key_len: how many keys there are.
        head_dim: channels of one head's query and key.
        value_dim: channels of one head's value.
        dtype: ``float64``, ``float32``, ``bfloat16`` or ``float16``.
        options: what else `attend` would be given.

    Raises:
        ShapeError: as `attend` does.
        SpecError: as `attend` does.
    """

    def heads(count: int, length: int, dim: int) -> torch.Tensor:
        return torch.empty(batch, count, length, dim, dtype=getattr(torch, dtype), device="meta")

    query, key = heads(num_heads, query_len, head_dim), heads(num_kv_heads, key_len, head_dim)
    return plan(query, key, heads(num_kv_heads, key_len, value_dim), **options)
