from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st

from qkv.errors import SpecError
from qkv.layers import MultiHeadAttention, rotate
from qkv.vocabulary import Pairing

PAIRINGS: tuple[Pairing, ...] = ("halves", "adjacent")


def as_complex(heads: torch.Tensor, pairing: Pairing) -> torch.Tensor:
    """The pairs as complex numbers, by indices written out one by one."""
    pairs = heads.shape[-1] // 2
    partners = [(i, i + pairs) if pairing == "halves" else (2 * i, 2 * i + 1) for i in range(pairs)]
    return torch.stack([torch.complex(heads[..., i], heads[..., j]) for i, j in partners], dim=-1)


@given(pairing=st.sampled_from(PAIRINGS), pairs=st.integers(1, 6), first=st.integers(-3, 500), tokens=st.integers(1, 5))
def test_it_multiplies_each_pair_by_a_unit_complex_number(
    pairing: Pairing, pairs: int, first: int, tokens: int
) -> None:
    heads = torch.randn(2, 3, tokens, 2 * pairs, dtype=torch.float64)
    unit = torch.tensor(
        [
            [complex(math.cos(angle), math.sin(angle)) for angle in (at / 1000 ** (i / pairs) for i in range(pairs))]
            for at in range(first, first + tokens)
        ],
        dtype=torch.complex128,
    )
    turned = as_complex(rotate(heads, first, pairing, base=1000.0), pairing)
    torch.testing.assert_close(turned, as_complex(heads, pairing) * unit, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_score_depends_on_the_distance_and_not_on_the_place(pairing: Pairing) -> None:
    query, key = torch.randn(2, 7, 8, dtype=torch.float64)
    scores = rotate(query, 0, pairing) @ rotate(key, 0, pairing).mT
    moved = rotate(query, 1234, pairing) @ rotate(key, 1234, pairing).mT
    apart = rotate(query, 1, pairing) @ rotate(key, 0, pairing).mT
    torch.testing.assert_close(scores, moved, rtol=0, atol=1e-11)
    assert (scores - apart).abs().max() > 0.1


def test_the_pairings_differ_by_a_permutation_of_the_channels() -> None:
    heads = torch.randn(5, 8, dtype=torch.float64)
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    expected = rotate(heads, 3, "halves")[:, order]
    torch.testing.assert_close(rotate(heads[:, order], 3, "adjacent"), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_positions_stay_exact_in_half_precision(dtype: torch.dtype) -> None:
    heads = torch.randn(1, 8).to(dtype)
    for position in (2049, 4097, 30001):
        turned = rotate(heads, position)
        assert turned.dtype == dtype
        expected = rotate(heads.double(), position)
        torch.testing.assert_close(turned.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=5e-3)


def test_fewer_queries_than_keys_stand_at_the_end() -> None:
    layer = MultiHeadAttention(12, 3, num_kv_heads=1, causal=True, rope="adjacent").double()
    inputs = torch.randn(2, 9, 12, dtype=torch.float64)
    whole = layer(inputs)
    for last in (1, 4, 9):
        torch.testing.assert_close(layer(inputs[:, -last:], inputs), whole[:, -last:], rtol=0, atol=1e-14)


def test_an_odd_head_is_refused_with_the_line_to_write(unchecked: None) -> None:
    with pytest.raises(SpecError, match=r"Write head_dim=4, or rope=None\."):
        MultiHeadAttention(12, 4, rope="halves")


def test_an_unknown_pairing_is_refused_with_the_nearest_one(unchecked: None) -> None:
    with pytest.raises(SpecError, match=r"rope='half' names no pairing of channels; did you mean 'halves'\?"):
        MultiHeadAttention(12, 3, rope="half")  # type: ignore[arg-type]
