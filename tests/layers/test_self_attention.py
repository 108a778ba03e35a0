from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st

from qkv.layers import SelfAttention


@pytest.mark.parametrize("bias", [False, True])
def test_it_agrees_with_torchs_own_attention(bias: bool) -> None:
    layer = SelfAttention(11, 7, bias=bias).double()
    inputs = torch.randn(3, 5, 11, dtype=torch.float64)
    query, key, value = (
        F.linear(inputs, p.weight, p.bias) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )  # written out, so that swapping two projections in the layer would show
    torch.testing.assert_close(layer(inputs), F.scaled_dot_product_attention(query, key, value), rtol=0, atol=1e-13)


@given(tokens=st.integers(1, 9), embed_dim=st.integers(1, 8), head_dim=st.integers(1, 8))
def test_one_token_at_a_time_gives_the_rows_of_the_batch(tokens: int, embed_dim: int, head_dim: int) -> None:
    layer = SelfAttention(embed_dim, head_dim).double()
    inputs = torch.randn(tokens, embed_dim, dtype=torch.float64)
    rows = layer(inputs)
    for token in range(tokens):
        query = layer.q_proj.weight @ inputs[token]
        scores = torch.stack([query @ (layer.k_proj.weight @ other) for other in inputs]) / head_dim**0.5
        shares = scores.exp() / scores.exp().sum()
        context = sum(share * (layer.v_proj.weight @ other) for share, other in zip(shares, inputs, strict=True))
        torch.testing.assert_close(rows[token], context, rtol=0, atol=1e-13)


def test_every_row_of_weights_sums_to_one() -> None:
    weights = SelfAttention(11, 7).double().attention_weights(torch.randn(3, 5, 11, dtype=torch.float64))
    assert weights.shape == (3, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))


def test_a_sequence_of_a_batch_is_the_sequence_alone() -> None:
    layer = SelfAttention(11, 7).double()
    inputs = torch.randn(3, 5, 11, dtype=torch.float64)
    for sequence, context in zip(inputs, layer(inputs), strict=True):
        torch.testing.assert_close(layer(sequence), context, rtol=0, atol=1e-14)


def test_gradients_are_right() -> None:
    layer = SelfAttention(3, 2, bias=True).double()
    assert torch.autograd.gradcheck(layer, torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True))
