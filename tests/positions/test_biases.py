"""Alibi's slopes against the paper and two models' own code; the relative bias's table."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from qkv.errors import SpecError
from qkv.positions import Alibi, RelativeBias, alibi_slopes


def test_the_papers_slopes_for_eight_heads() -> None:
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 7, 8, 12, 16, 20, 31, 32, 64, 71, 112])
def test_slopes_of_any_number_of_heads_are_bloom_s_and_mpt_s(num_heads: int) -> None:
    # Both add slope * key: the second key's number is the slope, and a step back costs it.
    bloom = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    mpt = build_mpt_alibi_tensor(num_heads, 2)
    assert len(alibi_slopes(num_heads)) == num_heads
    assert alibi_slopes(num_heads) == pytest.approx(bloom.tolist(), rel=1e-6)
    assert alibi_slopes(num_heads) == pytest.approx((mpt[:, 0, 1] - mpt[:, 0, 0]).tolist(), rel=1e-6)


def test_slopes_of_ones_own_come_before_the_papers() -> None:
    assert Alibi((0.5, 0.25)).slopes_for(2) == [0.5, 0.25]
    assert Alibi().slopes_for(2) == alibi_slopes(2)


def test_a_table_reaches_as_far_as_it_has_numbers() -> None:
    assert RelativeBias(((0.0, 1.0, 2.0, 3.0, 4.0),)).reach == 2
    assert RelativeBias(((1.0,), (2.0,))).reach == 0


@pytest.mark.parametrize("table", [(), ((),), ((1.0, 2.0),), ((1.0,), (1.0, 2.0, 3.0))])
def test_a_table_without_a_middle_is_refused(table: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(SpecError, match="same odd number"):
        RelativeBias(table)
