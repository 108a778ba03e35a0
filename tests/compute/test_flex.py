"""Masks for torch's flex attention: the blocks, beside torch's own way to make them, and the truth table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.compute import attend, block_mask
from qkv.masks import Mask, dilated, everything, per_head, prefix, rule

QUERIES, KEYS, SIZE = 21, 37, 8
SIMPLE: dict[str, Callable[[], Mask]] = {
    "everything": everything,
    "causal": qkv.causal,
    "window": lambda: qkv.causal() & qkv.window(11),
    "documents": lambda: qkv.causal() & qkv.documents(np.arange(KEYS) // 12),
    "padding": lambda: qkv.padding([30, KEYS]),
    "by head": lambda: per_head([qkv.causal(), qkv.window(9)]),
}
"""Masks of which it is known what each block reaches."""
OTHER: dict[str, Callable[[], Mask]] = {
    "rule": lambda: rule(lambda query, key: (query + key) % 3 > 0),
    "joined": lambda: ~qkv.window(5) & qkv.padding([9, 20]) | prefix(3) & per_head([dilated(2), qkv.causal()]),
    "none": lambda: ~everything(),
}


def blocks_of(made: Any) -> list[torch.Tensor]:
    """Which blocks are asked, and which are whole, ``(batch, head, query_block, key_block)``."""
    lists = (made.kv_num_blocks, made.kv_indices), (made.full_kv_num_blocks, made.full_kv_indices)
    dense = []
    for counts, indices in lists:
        listed = torch.arange(indices.shape[-1]) < counts[..., None]
        dense.append(torch.zeros(indices.shape, dtype=torch.bool).scatter_(-1, indices.long(), listed))
    return dense


@pytest.mark.parametrize("make", SIMPLE.values(), ids=SIMPLE.keys())
def test_the_blocks_are_those_that_torch_finds_by_asking(make: Callable[[], Mask]) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    mask = make()
    mod: Any = mask.mask_mod(KEYS - QUERIES)
    theirs = blocks_of(create_block_mask(mod, 2, 2, QUERIES, KEYS, device="cpu", BLOCK_SIZE=SIZE))
    ours = blocks_of(block_mask(mask, QUERIES, KEYS, batch=2, num_heads=2, block_size=SIZE))
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.equal(mine.expand(its.shape), its)


@pytest.mark.parametrize("make", [*SIMPLE.values(), *OTHER.values()], ids=[*SIMPLE, *OTHER])
@pytest.mark.parametrize("offset", [-3, 0, 16])
def test_no_pair_is_lost_and_none_let_through(make: Callable[[], Mask], offset: int) -> None:
    mask = make()
    asked, whole = blocks_of(
        block_mask(mask, QUERIES, KEYS, batch=2, num_heads=2, query_offset=offset, block_size=SIZE)
    )
    for sequence in range(2):
        for head in range(2):
            table = torch.zeros(24, 40, dtype=torch.bool)
            one = mask.alone(sequence, head)
            table[:QUERIES, :KEYS] = torch.from_numpy(np.array(one.dense(QUERIES, KEYS, query_offset=offset)))
            pairs = table.unflatten(1, (5, SIZE)).unflatten(0, (3, SIZE)).transpose(1, 2).flatten(2)
            mine = [x.expand(2, 2, 3, 5)[sequence, head] for x in (asked, whole)]
            assert not (mine[0] & mine[1]).any()
            assert (mine[0] | mine[1])[pairs.any(-1)].all()
            assert pairs.all(-1)[mine[1]].all()


@pytest.mark.filterwarnings("ignore")  # torch's own: it is slow where it isn't compiled
def test_flex_attention_computes_with_it_what_attend_does() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    mask = qkv.causal() & qkv.window(11) | prefix(3)
    query, key, value = torch.randn(2, 4, QUERIES, 16), torch.randn(2, 2, KEYS, 16), torch.randn(2, 2, KEYS, 16)
    blocks = block_mask(mask, QUERIES, KEYS, block_size=SIZE)
    with torch.compiler.set_stance("force_eager"):
        output: Any = flex_attention(query, key, value, block_mask=blocks, enable_gqa=True)
    torch.testing.assert_close(output, attend(query, key, value, mask=mask))


def test_a_long_mask_is_made_without_its_pairs() -> None:
    blocks = block_mask(qkv.causal() & qkv.window(256), 131_072, 131_072)  # pairs would be 17 GB
    assert blocks.sparsity() > 99
