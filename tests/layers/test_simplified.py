from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from jaxtyping import TypeCheckError

from qkv.layers import attention_weights, context_vector, context_vectors


def by_hand(inputs: list[list[float]], token: int) -> list[float]:
    """The context vector of one token, in plain Python."""
    exponentials = [math.exp(sum(a * b for a, b in zip(inputs[token], other, strict=True))) for other in inputs]
    return [
        sum(weight * other[channel] for weight, other in zip(exponentials, inputs, strict=True)) / sum(exponentials)
        for channel in range(len(inputs[0]))
    ]


@given(tokens=st.integers(1, 9), dim=st.integers(1, 7))
def test_every_row_is_what_plain_arithmetic_gives(tokens: int, dim: int) -> None:
    inputs = torch.randn(tokens, dim, dtype=torch.float64)
    expected = torch.tensor([by_hand(inputs.tolist(), token) for token in range(tokens)], dtype=torch.float64)
    torch.testing.assert_close(context_vectors(inputs), expected, rtol=0, atol=1e-13)


def test_a_row_of_the_batch_is_the_vector_of_the_token_alone() -> None:
    inputs = torch.randn(6, 3, dtype=torch.float64)
    batch = context_vectors(inputs)
    for token in range(-6, 6):
        torch.testing.assert_close(context_vector(inputs, token), batch[token], rtol=0, atol=1e-14)


def test_it_is_attention_without_a_scale() -> None:
    inputs = torch.randn(5, 3, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(inputs, inputs, inputs, scale=1.0)
    torch.testing.assert_close(context_vectors(inputs), expected, rtol=0, atol=1e-13)


def test_the_weights_of_a_token_sum_to_one_and_prefer_the_most_alike() -> None:
    inputs = torch.eye(4, dtype=torch.float64)
    weights = attention_weights(inputs)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, dtype=torch.float64))
    assert weights.argmax(-1).tolist() == [0, 1, 2, 3]


def test_a_token_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        context_vector(torch.zeros(3, 2), 3)


def test_a_wrong_shape_is_caught_while_the_tests_run() -> None:
    with pytest.raises(TypeCheckError, match="inputs"):
        context_vectors(torch.zeros(2, 3, 5))
