"""The layout of blocks of queries, and the share of the pairs that it computes, against the truth table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import qkv
from drawn import drawn_masks
from qkv.errors import ShapeError, SpecError
from qkv.masks import Mask, per_head
from qkv.masks.layout import Rows, layout, share


@given(drawn_masks(), st.integers(1, 9), st.integers(1, 9), st.integers(-3, 5), st.integers(1, 5))
def test_full_keys_are_seen_by_all_and_skipped_keys_by_none(
    mask: Mask, query_len: int, key_len: int, offset: int, block: int
) -> None:
    allows = mask.dense(query_len, key_len, query_offset=offset)
    rows = layout(mask, query_len, key_len, query_offset=offset, block=block)
    assert [row.queries for row in rows] == [(q, min(q + block, query_len)) for q in range(0, query_len, block)]
    computed = 0
    for (start, stop), full, partial in rows:
        needed = np.zeros(key_len, bool)
        for first, behind in full:
            assert allows[start:stop, first:behind].all()
            needed[first:behind] = True
        for first, behind in partial:
            assert not needed[first:behind].any()
            needed[first:behind] = True
        assert not allows[start:stop, ~needed].any()
        computed += needed.sum() * (stop - start)
    assert share(rows, key_len) == pytest.approx(computed / query_len / key_len)


def test_blocks_of_a_causal_window_by_hand() -> None:
    rows = layout(qkv.causal() & qkv.window(4), 6, 9, query_offset=3, block=2)
    assert rows == (
        Rows((0, 2), full=((1, 4),), partial=((0, 1), (4, 5))),
        Rows((2, 4), full=((3, 6),), partial=((2, 3), (6, 7))),
        Rows((4, 6), full=((5, 8),), partial=((4, 5), (8, 9))),
    )
    assert share(rows, 9) == 5 / 9


def test_documents_and_padding_are_skipped() -> None:
    mask = qkv.documents(cu_seqlens=[0, 4, 8]) & qkv.padding([6])
    assert layout(mask, 8, 8, block=4) == (Rows((0, 4), ((0, 4),), ()), Rows((4, 8), ((4, 6),), ()))


def test_rows_serve_all_sequences_and_heads_of_a_mask_that_varies() -> None:
    mask = per_head([qkv.causal(), qkv.prefix(1)]) & qkv.padding([2, 4])
    assert layout(mask, 4, 4, block=2) == (
        Rows((0, 2), ((0, 1),), ((1, 2),)),
        Rows((2, 4), ((0, 1),), ((1, 4),)),
    )


def test_a_layout_is_made_once() -> None:
    made = layout(qkv.causal() & qkv.documents([0, 0, 1]), 3, 3)
    assert layout(qkv.causal() & qkv.documents(np.array([0, 0, 1])), 3, 3) is made


def test_nothing_has_no_share() -> None:
    assert share(layout(qkv.causal(), 0, 4), 4) == 0.0
    assert share(layout(qkv.causal(), 4, 0), 0) == 0.0


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(SpecError, match="block is 0, and must be at least 1"):
        layout(qkv.causal(), 4, 4, block=0)
    with pytest.raises(ShapeError, match="ids for 3 tokens, and there are 4 keys"):
        layout(qkv.documents([0, 0, 1]), 4, 4)
