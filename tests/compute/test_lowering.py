"""Masks as tiles: few calls, little that is computed in vain, and bounded memory whatever the mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.compute import plan
from qkv.compute.lowering import MOST_NOTED, capped, lower
from qkv.compute.tiles import Table, Tile
from qkv.masks import Mask, causal, documents, everything, global_tokens, padding, prefix, rule, window


def computed(tiles: tuple[Tile, ...], length: int) -> float:
    """The share of the pairs of one sequence."""
    return sum(tile.pairs for tile in tiles) / length**2


@pytest.mark.parametrize("length", [1024, 4096, 65_536])
def test_a_window_is_a_few_tiles_at_any_length(length: int) -> None:
    tiles = lower(causal() & window(256), 1, length, length, 0)
    assert len(tiles) <= 4 + length / 64 / 64 + 1
    assert computed(tiles, length) * length < 256 + 64


@pytest.mark.parametrize(
    ("mask", "calls", "share"),
    [
        (everything(), 1, 1.0),
        (causal(), 1, 1.0),
        (causal() & documents(np.arange(2048) // 128), 1, 1 / 16),
        (causal() & documents(np.arange(2048) // 512), 8, 9 / 64),
        (documents(np.arange(2048) // 512), 1, 1 / 4),
        (padding([1024]), 1, 1 / 2),
        (padding([1024], queries=True), 1, 1 / 4),
        (causal() & window(128) | global_tokens(16), 10, 0.14),
        (causal() & window(128) | prefix(64), 18, 0.14),
    ],
    ids=str,
)
def test_what_is_hidden_is_in_few_tiles_or_none(mask: Mask, calls: int, share: float) -> None:
    tiles = lower(mask, 1, 2048, 2048, 0)
    assert sum(1 for tile in tiles for _ in tile.calls()) <= calls
    assert computed(tiles, 2048) <= share


def test_masks_without_order_are_not_shattered() -> None:
    ids = np.random.default_rng(0).integers(0, 50, 4096)
    tiles = lower(documents(ids), 1, 4096, 4096, 0)
    assert len(tiles) < 200
    noted = {id(tile.masking): tile.masking for tile in tiles if isinstance(tile.masking, Table)}
    assert sum(table.allows.size for table in noted.values()) <= MOST_NOTED
    assert len(lower(rule(lambda query, key: (query * key) % 7 != 0), 1, 4096, 4096, 0)) <= 64


def test_tiles_in_pieces_are_the_same_tiles() -> None:
    length = 300
    for mask in (causal() & window(40), causal() & documents(np.arange(length) // 100), everything()):
        tiles = lower(mask, 2, length, length, 0)
        pieces = tuple(capped(tiles, 500))
        assert all(piece.pairs <= 500 or piece.pairs == piece.width for piece in pieces)
        assert sum(piece.pairs for piece in pieces) == sum(tile.pairs for tile in tiles)


@pytest.mark.parametrize("sizes", [(0, 5, 5), (1, 0, 5), (1, 5, 0)], ids=str)
def test_nothing_is_no_tile(sizes: tuple[int, int, int]) -> None:
    assert lower(causal(), *sizes, 0) == ()


def test_a_short_causal_square_is_made_in_strips_where_these_keep_the_threads_busy() -> None:
    strips, whole = (lower(causal(), 1, 512, 512, 0, strips=strips) for strips in (True, False))
    assert computed(strips, 512) == 9 / 16
    assert computed(whole, 512) == len(whole) == 1


def test_sdpa_needs_no_table_of_a_plainly_causal_mask_and_the_plan_does_not_say_so() -> None:
    query = torch.zeros(1, 8, 512, 8)
    reasons = [str(plan(query, query, query, mask=mask)) for mask in (causal(), causal() & window(64))]
    assert ["needed a table" in reason for reason in reasons] == [False, True]
