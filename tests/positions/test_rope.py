"""Rope against complex numbers, and its scalings against transformers."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from drawn import drawn_ropes
from qkv.errors import SpecError
from qkv.positions import Rope, RopeScaling, rotate
from qkv.vocabulary import Pairing


def turned_by_hand(x: np.ndarray, positions: list[int], frequencies: list[float], pairing: Pairing) -> np.ndarray:
    """``(token, dim)`` turned one pair of one token at a time, each pair as one complex number."""
    result = x.copy()
    for token, position in enumerate(positions):
        for pair, frequency in enumerate(frequencies):
            first = pair if pairing == "halves" else 2 * pair
            second = pair + len(frequencies) if pairing == "halves" else 2 * pair + 1
            number = complex(x[token, first], x[token, second]) * cmath.exp(1j * position * frequency)
            result[token, first], result[token, second] = number.real, number.imag
    return result


@given(drawn_ropes(8), st.integers(-3, 40), st.integers(0, 2**16))
def test_a_pair_is_turned_as_a_complex_number(rope: Rope, first: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(5, 8))
    positions = list(range(first, first + 5))
    frequencies = rope.frequencies(8)
    got = rotate(x, np.array(positions, dtype=float), np.array(frequencies), rope.pairing)
    np.testing.assert_allclose(got, turned_by_hand(x, positions, frequencies, rope.pairing), atol=1e-12)


@given(drawn_ropes(8), st.integers(0, 2**16))
def test_a_score_depends_on_the_distance_only(rope: Rope, seed: int) -> None:
    query, key = np.random.default_rng(seed).normal(size=(2, 1, 8))
    frequencies = np.array(rope.frequencies(8))

    def score(query_at: float, key_at: float) -> float:
        turned = [rotate(x, np.array([at]), frequencies, rope.pairing) for x, at in ((query, query_at), (key, key_at))]
        return float(np.sum(turned[0] * turned[1]))

    assert score(9, 4) == pytest.approx(score(5, 0), abs=1e-10)
    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-10)


def test_the_pairings_differ_by_an_order_of_channels() -> None:
    x = np.random.default_rng(0).normal(size=(5, 8))
    positions, frequencies = np.arange(5.0), np.array(Rope().frequencies(8))
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    by_halves = rotate(x, positions, frequencies, "halves")[:, order]
    np.testing.assert_allclose(by_halves, rotate(x[:, order], positions, frequencies, "adjacent"))


def test_channels_beyond_dims_stay_and_the_factor_is_on_the_others_only() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 8))
    got = rotate(x, np.arange(3.0), np.array(Rope(dims=4).frequencies(8)), "halves", factor=2.0)
    np.testing.assert_array_equal(got[..., 4:], x[..., 4:])
    np.testing.assert_allclose(np.linalg.norm(got[..., :4], axis=-1), 2 * np.linalg.norm(x[..., :4], axis=-1))
    np.testing.assert_allclose(got[:, 0, :4], 2 * x[:, 0, :4])


def test_torch_is_turned_as_numpy() -> None:
    x, positions = np.random.default_rng(0).normal(size=(2, 3, 8)), np.arange(3.0)
    frequencies = np.array(Rope().frequencies(8))
    got = rotate(torch.tensor(x), torch.tensor(positions), torch.tensor(frequencies), "adjacent")
    np.testing.assert_allclose(got.numpy(), rotate(x, positions, frequencies, "adjacent"), atol=1e-13)


# --- scalings, against transformers -----------------------------------------------------------------------------------


def theirs(head_dim: int, base: float, share: float = 1.0, **parameters: Any) -> tuple[list[float], float]:
    """Frequencies and attention factor that transformers computes, in float32."""
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=32768,
        rope_parameters={"rope_theta": base, "partial_rotary_factor": share, **parameters},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))
    return frequencies.tolist(), factor


SIZES = st.sampled_from([(8, 1.0), (64, 1.0), (128, 1.0), (64, 0.5), (96, 0.25)])
BASES = st.sampled_from([500.0, 10000.0, 150000.0, 5e5])
LENGTHS = st.sampled_from([512, 4096, 8192])
FACTORS = st.sampled_from([1.0, 2.0, 8.0, 32.0])


def same(rope: Rope, head_dim: int, expected: tuple[list[float], float]) -> None:
    assert rope.frequencies(head_dim) == pytest.approx(expected[0], rel=3e-6)
    assert rope.attention_factor == pytest.approx(expected[1])


@given(SIZES, BASES, FACTORS)
def test_linear(size: tuple[int, float], base: float, factor: float) -> None:
    head_dim, share = size
    rope = Rope(base=base, dims=int(head_dim * share), scaling=RopeScaling("linear", factor))
    same(rope, head_dim, theirs(head_dim, base, share, rope_type="linear", factor=factor))


@given(SIZES, BASES, FACTORS, LENGTHS, st.sampled_from([(1.0, 4.0), (0.5, 9.0)]))
def test_llama3(size: tuple[int, float], base: float, factor: float, length: int, ramp: tuple[float, float]) -> None:
    head_dim, share = size
    low, high = ramp
    scaling = RopeScaling("llama3", factor, length, low_freq_factor=low, high_freq_factor=high)
    expected = theirs(
        head_dim, base, share, rope_type="llama3", factor=factor, original_max_position_embeddings=length,
        low_freq_factor=low, high_freq_factor=high,
    )  # fmt: skip
    same(Rope(base=base, dims=int(head_dim * share), scaling=scaling), head_dim, expected)


@given(SIZES, BASES, FACTORS, LENGTHS, st.sampled_from([(32.0, 1.0), (16.0, 0.5)]), st.booleans(), st.booleans())
def test_yarn(
    size: tuple[int, float],
    base: float,
    factor: float,
    length: int,
    ramp: tuple[float, float],
    truncate: bool,
    has_factor: bool,
) -> None:
    head_dim, share = size
    fast, slow = ramp
    attention_factor = 1.25 if has_factor else None
    scaling = RopeScaling(
        "yarn", factor, length, beta_fast=fast, beta_slow=slow, attention_factor=attention_factor, truncate=truncate
    )
    expected = theirs(
        head_dim, base, share, rope_type="yarn", factor=factor, original_max_position_embeddings=length,
        beta_fast=fast, beta_slow=slow, truncate=truncate, attention_factor=attention_factor,
    )  # fmt: skip
    same(Rope(base=base, dims=int(head_dim * share), scaling=scaling), head_dim, expected)


def test_plain_frequencies_and_what_every_scaling_keeps() -> None:
    assert Rope().frequencies(8) == pytest.approx([1.0, 0.1, 0.01, 0.001])
    for kind in ("llama3", "yarn"):
        scaled = Rope(scaling=RopeScaling(kind, 8.0)).frequencies(64)
        plain = Rope().frequencies(64)
        assert scaled[0] == plain[0]
        assert scaled[-1] == pytest.approx(plain[-1] / 8)
        assert all(p / 8 - 1e-15 <= s <= p for s, p in zip(scaled, plain, strict=True))


def test_only_yarn_scales_query_and_key() -> None:
    assert Rope(scaling=RopeScaling("linear", 4.0)).attention_factor == 1.0
    assert Rope(scaling=RopeScaling("yarn", 4.0)).attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert Rope(scaling=RopeScaling("yarn", 0.5)).attention_factor == 1.0


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Rope(base=0.0), "rope base is 0.0"),
        (lambda: Rope(base=math.nan), "rope base is nan"),
        (lambda: Rope(base=1.0, scaling=RopeScaling("yarn", 2.0)), "above 1 for yarn"),
        (lambda: Rope(dims=3), "even number of channels"),
        (lambda: RopeScaling("linear", 0.0), "factor is 0.0"),
        (lambda: RopeScaling("yarn", 2.0, 0), "original_length is 0"),
        (lambda: RopeScaling("llama3", 2.0, low_freq_factor=4.0), "low_freq_factor 4.0 and high_freq_factor 4.0"),
        (lambda: RopeScaling("yarn", 2.0, beta_fast=0.5), "beta_slow 1.0 and beta_fast 0.5"),
    ],
)
def test_what_can_not_turn_is_refused(build: Any, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        build()
