"""The truth table of a mask, its picture, and flex attention's function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import qkv
from drawn import drawn_masks
from qkv.errors import ShapeError
from qkv.masks import Mask, dilated, global_tokens, parse_mask, per_head, rule

IDS, LENGTHS = [[0, 0, 1, 1, 0], [0, 1, 1, 2, 2]], [3, 5]
VARIED = [
    qkv.causal() & qkv.documents(IDS),
    qkv.documents(cu_seqlens=[0, 2, 5]) | qkv.prefix(1),
    ~qkv.padding(LENGTHS),
    qkv.padding([4]) & qkv.causal(),
    per_head([qkv.causal(), qkv.window(2), qkv.causal()]),
    per_head([qkv.causal(), per_head([qkv.prefix(1)] * 3), qkv.documents(IDS)]) & qkv.padding(LENGTHS),
    (qkv.prefix(1) & qkv.padding(LENGTHS)).shifted(2),
    rule(lambda query, key: (query + key) % 2 == 0) & global_tokens(3),
    dilated(2) & qkv.causal(),
]


def test_where_the_first_query_stands() -> None:
    mask = qkv.causal()
    assert mask.dense(2, 4).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask.dense(2, 4, query_offset="top_left").astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert mask.dense(2, 4, query_offset=-1).astype(int).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]


def test_documents_and_padding_say_what_their_numbers_say() -> None:
    documents, padding = qkv.documents(IDS).dense(5, 5), qkv.padding(LENGTHS).dense(5, 5)
    for batch, query, key in np.ndindex(2, 5, 5):
        assert documents[batch, 0, query, key] == (IDS[batch][query] == IDS[batch][key])
        assert padding[batch, 0, query, key] == (key < LENGTHS[batch])


def test_queries_where_no_token_stands_are_of_no_document() -> None:
    assert qkv.documents([7, 7]).dense(4, 2, query_offset=-1).astype(int).tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]


def test_a_moved_mask_says_of_later_tokens_what_it_said_of_earlier_ones() -> None:
    mask = (qkv.causal() & qkv.window(2) | qkv.prefix(1)) & qkv.padding([4])
    plain, moved = mask.dense(4, 4), mask.shifted(2).dense(6, 6)
    assert (moved[2:, 2:] == plain).all()
    assert str(mask.shifted(2)) == "((causal & window(2) | prefix(1)) & padding([4])).shifted(2)"


def test_a_table_has_the_axes_that_it_needs() -> None:
    assert qkv.causal().dense(2, 5).shape == (2, 5)
    assert qkv.documents(IDS[0]).dense(2, 5).shape == (2, 5)
    assert qkv.documents(IDS).dense(2, 5).shape == (2, 1, 2, 5)
    assert qkv.documents(IDS[0]).dense(2, 5, batch=3).shape == (3, 1, 2, 5)
    assert VARIED[4].dense(2, 5).shape == (1, 3, 2, 5)
    assert VARIED[5].dense(2, 5).shape == (2, 3, 2, 5)
    with pytest.raises(ShapeError, match="ids for 2 sequences, and there are 3"):
        qkv.documents(IDS).dense(2, 5, batch=3)


@pytest.mark.parametrize("mask", VARIED, ids=str)
def test_each_sequence_and_head_has_the_table_of_the_mask_that_it_sees_alone(mask: Mask) -> None:
    table = np.broadcast_to(mask.dense(4, 5, batch=2), (2, 3, 4, 5))
    for batch, head in np.ndindex(2, 3):
        alone = mask.alone(batch, head)
        assert alone.varies == (False, False)
        assert (alone.dense(4, 5) == table[batch, head]).all()


@pytest.mark.parametrize("mask", VARIED, ids=str)
def test_torch_makes_the_same_table(mask: Mask) -> None:
    import torch

    table = mask.dense(4, 5, xp=torch)
    assert isinstance(table, torch.Tensor)
    assert (table.numpy() == mask.dense(4, 5)).all()


@pytest.mark.parametrize("mask", VARIED, ids=str)
def test_flex_attention_reads_the_same_mask(mask: Mask) -> None:
    import torch
    from torch.nn.attention.flex_attention import create_mask

    mod: Any = mask.mask_mod(query_offset=1)
    assert (create_mask(mod, 2, 3, 4, 5, device="cpu").numpy() == mask.dense(4, 5)).all()
    assert mod(torch.tensor(1), torch.tensor(0), torch.tensor(3), torch.tensor(0)).ndim == 0


def test_flex_attention_computes_with_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.nn.attention import flex_attention as flex

    # It compiles what it is given unless told otherwise, and the tests' checks of types can't be compiled.
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    mask = VARIED[5] | qkv.window(1)
    mod: Any = mask.mask_mod(query_offset=1)
    query, key = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    block_mask = flex.create_block_mask(mod, 2, 3, 4, 5, device="cpu", BLOCK_SIZE=2)
    scores = (query @ key.mT / 8**0.5).masked_fill(~mask.dense(4, 5, xp=torch), -torch.inf)
    output = flex.flex_attention(query, key, key, block_mask=block_mask)
    torch.testing.assert_close(output, torch.softmax(scores, -1) @ key)


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_a_small_picture_shows_every_pair() -> None:
    assert qkv.causal().picture(3, 5).splitlines() == [
        "query \\ key  0",
        "          0  ███··",
        "          1  ████·",
        "          2  █████",
    ]
    assert qkv.documents(IDS).picture(5, 5, sequence=1, ascii_only=True).splitlines()[1:] == [
        "          0  #....",
        "          1  .##..",
        "          2  .##..",
        "          3  ...##",
        "          4  ...##",
    ]


@given(drawn_masks(), st.integers(1, 70), st.integers(1, 140))
def test_a_large_picture_shows_whether_all_or_some_of_a_cell_may_attend(mask: Mask, queries: int, keys: int) -> None:
    table = mask.dense(queries, keys)
    lines = mask.picture(queries, keys).splitlines()
    high, wide = -(-queries // 32), -(-keys // 64)
    cells = [line.split()[1] for line in lines[1 : 1 + -(-queries // high)]]
    for row, line in enumerate(cells):
        assert len(line) == -(-keys // wide)
        for column, shade in enumerate(line):
            cell = table[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
            assert shade == ("█" if cell.all() else "▒" if cell.any() else "·")
    assert len(lines) == 1 + len(cells) + (high > 1 or wide > 1)


def test_a_picture_of_a_long_sequence_is_quick_and_says_what_a_cell_is() -> None:
    lines = parse_mask("causal & window(8192)").picture(131072, 131072).splitlines()
    assert lines[0].split() == ["query", "\\", "key", *map(str, range(0, 131072, 16384))]
    assert lines[10].split() == ["36864", "·" * 14 + "▒▒██▒▒" + "·" * 44]
    assert lines[-1] == "each cell is 4096 queries by 2048 keys: █ all pairs may attend, ▒ some, · none"
