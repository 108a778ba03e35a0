"""Flex: masks for torch's `flex_attention`, the road to fused kernels on GPUs."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from qkv.masks import Mask, QueryOffset, Span
from qkv.masks.places import position_of_first

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Blocks = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def block_mask(
    mask: Mask,
    query_len: int,
    key_len: int,
    *,
    batch: int = 1,
    num_heads: int = 1,
    query_offset: QueryOffset = "bottom_right",
    block_size: int = 128,
    device: torch.device | str = "cpu",
) -> BlockMask:
    """The mask for `torch.nn.attention.flex_attention`, as `create_block_mask` makes it, and without all the pairs.

    That function asks the mask of every pair at once, 17 GB for 131,072 tokens; this one reads from the mask which
    blocks all and which some of a block's queries reach. What it can't tell is asked pair by pair.

    Args:
        mask: who may attend to whom.
        query_len: how many queries there are.
        key_len: how many keys there are.
        batch: how many sequences, where the mask differs from one to the next.
        num_heads: how many query heads, likewise.
        query_offset: position of the first query. ``bottom_right`` lets the last query stand at the last key.
        block_size: queries and keys of a block.
        device: where the mask is needed.

    Raises:
        ShapeError: the mask carries numbers for other keys, sequences or heads.
    """
    from torch.nn.attention.flex_attention import BlockMask  # it loads torch's compiler

    mask.must_fit(key_len, batch=batch, num_heads=num_heads)
    first = position_of_first(query_offset, query_len, key_len)
    by_sequence, by_head = mask.varies
    alike = batch if by_sequence else 1, num_heads if by_head else 1
    blocks = [
        _blocks(mask.alone(sequence, head), query_len, key_len, first, block_size)
        for sequence, head in product(*map(range, alike))
    ]
    every, some = (np.stack(each).reshape(*alike, *each[0].shape) for each in zip(*blocks, strict=True))
    asked, indices = _listed(some & ~every, device)
    whole, whole_indices = _listed(every, device)
    return BlockMask.from_kv_blocks(
        asked,
        indices,
        whole,
        whole_indices,
        BLOCK_SIZE=block_size,
        mask_mod=mask.mask_mod(first),
        seq_lengths=(query_len, key_len),
    )


def _blocks(mask: Mask, query_len: int, key_len: int, first: int, size: int) -> tuple[Blocks, Blocks]:
    """Which blocks of keys all and which some queries of each block reach, ``(query_block, key_block)`` both.

    A block that stands out at the end is never whole: torch fills it up with pairs that may not attend.
    """
    shape = -(-query_len // size), -(-key_len // size)
    every, some = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for block, start in enumerate(range(0, query_len, size)):
        stop = min(start + size, query_len)
        reach = mask.reach(Span(first + start, first + stop - 1, 0, key_len - 1))
        for low, high in reach.some:
            some[block, low // size : -(-high // size)] = True
        for low, high in reach.every if stop - start == size else ():
            every[block, -(-low // size) : high // size] = True
    return every, some


def _listed(blocks: Blocks, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of keys each block of queries has, and which, those first."""
    counts, order = blocks.sum(-1, dtype=np.int32), np.argsort(~blocks, axis=-1, kind="stable").astype(np.int32)
    return torch.from_numpy(counts).to(device), torch.from_numpy(order).to(device)
