"""Levels halve, cells are the largest of what they cover, and a picture comes back from its PNG as it went in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pictured import picture, shade
from qkv.pictures.budget import STRIDES, affordable, fewer_shades, fitting
from qkv.pictures.pyramid import COARSE, FINE, LOW, Level, coarser, levels, png, shades

LENGTHS = st.integers(1, 200_000)


@given(LENGTHS, LENGTHS)
def test_levels_cover_everything_and_double(rows: int, columns: int) -> None:
    found = levels(rows, columns)
    for level in found:
        assert (level.rows - 1) * level.per_row < rows <= level.rows * level.per_row
        assert (level.columns - 1) * level.per_column < columns <= level.columns * level.per_column
    assert max(found[0][:2]) <= COARSE
    finest = found[-1]
    assert FINE / 2 < max(finest[:2]) <= FINE or finest[2:] == (1, 1)
    for coarse, fine in itertools.pairwise(found):
        assert {coarse.per_row // fine.per_row, coarse.per_column // fine.per_column} <= {1, 2}
        assert coarse != fine


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_each_level_is_made_of_the_finest(rows: int, columns: int, seed: int) -> None:
    finest = np.random.default_rng(seed).integers(0, 256, size=(rows, columns), dtype=np.uint8)
    sizes = levels(rows, columns)
    for level in sizes:
        found = coarser(finest, sizes[-1], level)
        assert found.shape == level[:2]
        row, column = (int(np.random.default_rng(seed).integers(length)) for length in level[:2])
        part = finest[row * level.per_row :, column * level.per_column :][: level.per_row, : level.per_column]
        assert found[row, column] == part.max()


@given(st.lists(st.floats(0, 1), min_size=1) | st.lists(st.floats(0, 1e-6), min_size=1))
def test_a_shade_is_what_the_page_reads(weights: list[float]) -> None:
    found = shades(np.array([weights, weights]))[0]
    for weight, byte in zip(weights, found, strict=True):
        assert byte in {shade(weight * around) for around in (1 - 1e-5, 1, 1 + 1e-5)}
        if byte > 1:
            assert 2 ** (LOW * (255 - int(byte)) / 253) == pytest.approx(weight, rel=0.04)


def test_shades_of_the_special() -> None:
    numbers = np.array([[-np.inf, 0.0, 2**-24 * 0.99, 2.0**-24, 1.0, 1.7, -0.3]])
    assert shades(numbers).tolist() == [[0, 1, 1, 2, 255, 255, 1]]


@pytest.mark.parametrize("kind", ["noise", "stripes", "one cell"])
def test_a_picture_comes_back(kind: str) -> None:
    rng = np.random.default_rng(0)
    made = {
        "noise": rng.integers(0, 256, size=(70, 130)),
        "stripes": np.broadcast_to(np.arange(200), (90, 200)),
        "one cell": np.array([[255]]),
    }[kind].astype(np.uint8)
    assert (picture(png(made)) == made).all()


# --- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", STRIDES)
def test_fewer_shades_are_near(stride: int) -> None:
    every = np.arange(256, dtype=np.uint8)[None]
    found = fewer_shades(every, stride)[0].astype(int)
    assert found[:2].tolist() == [0, 1]
    assert found[255] == 255
    assert (np.diff(found) >= 0).all()
    assert np.abs(found[2:] - np.arange(2, 256)).max() <= stride / 2
    assert len(set(found[2:].tolist())) <= -(-253 // stride) + 1


def test_pictures_fit_into_the_room() -> None:
    rng = np.random.default_rng(0)
    sizes = levels(256, 256)
    finest = [rng.integers(1, 256, size=(256, 256), dtype=np.uint8) for _ in range(3)]
    kept = {}
    for room in (1_000_000, 300_000, 180_000, 100_000, 40_000, 100):
        fit = fitting(finest, sizes, room)
        size = sum(len(uri) for of_head in fit.pictures for uri in of_head)
        assert size <= room or len(fit.levels) == 1
        kept[room] = (fit.levels, fit.stride)
        for head, of_head in zip(finest, fit.pictures, strict=True):
            expected = fewer_shades(coarser(head, sizes[-1], fit.levels[-1]), fit.stride)
            assert (picture(of_head[-1]) == expected).all()
    assert kept[1_000_000] == (sizes, 1)
    assert kept[300_000] == ([sizes[0], sizes[-1]], 1)  # each weight a cell comes first
    assert kept[180_000][0][-1] == sizes[-1]
    assert kept[180_000][1] > 1
    assert kept[40_000][0][-1] != sizes[-1]
    assert kept[100] == (sizes[:1], 1)


def test_levels_that_can_not_fit_are_not_made() -> None:
    sizes = levels(4096, 4096)
    assert affordable(sizes, 1, 14_000_000) == sizes
    assert affordable(sizes, 144, 14_000_000)[-1] == Level.of(4096, 4096, 1024)
    assert affordable(sizes, 144, 0) == sizes[:1]
