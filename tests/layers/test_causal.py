from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from qkv.layers import CausalAttention, MultiHeadAttention, SelfAttention


@pytest.fixture(params=["causal", "multi_head", "multi_head_rope"])
def causal_layer(request: pytest.FixtureRequest) -> torch.nn.Module:
    if request.param == "causal":
        return CausalAttention(12, 7, bias=True).double()
    rope = "halves" if request.param == "multi_head_rope" else None
    return MultiHeadAttention(12, 6, num_kv_heads=3, head_dim=4, causal=True, rope=rope).double()


def test_it_agrees_with_torchs_own_causal_attention() -> None:
    layer = CausalAttention(11, 7, bias=True).double()
    inputs = torch.randn(3, 5, 11, dtype=torch.float64)
    projected = [F.linear(inputs, p.weight, p.bias) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    expected = F.scaled_dot_product_attention(*projected, is_causal=True)
    torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=1e-13)


def test_a_later_token_leaves_earlier_rows_bitwise_as_they_were(causal_layer: torch.nn.Module) -> None:
    inputs = torch.randn(2, 9, 12, dtype=torch.float64)
    before = causal_layer(inputs)
    for token in range(9):
        changed = inputs.clone()
        changed[:, token] = 1e3 * torch.randn(2, 12, dtype=torch.float64)
        after = causal_layer(changed)
        assert torch.equal(after[:, :token], before[:, :token])
        assert not torch.equal(after[:, token], before[:, token])


def test_the_last_row_sees_everything() -> None:
    causal, every = CausalAttention(11, 7).double(), SelfAttention(11, 7).double()
    every.load_state_dict(causal.state_dict())
    inputs = torch.randn(5, 11, dtype=torch.float64)
    torch.testing.assert_close(causal(inputs)[-1], every(inputs)[-1], rtol=0, atol=1e-14)
    torch.testing.assert_close(causal(inputs)[0], causal.v_proj(inputs[0]), rtol=0, atol=1e-14)


def test_no_weight_stands_above_the_diagonal_and_no_row_is_empty() -> None:
    weights = CausalAttention(11, 7).double().attention_weights(torch.randn(3, 6, 11, dtype=torch.float64))
    assert (weights.triu(1) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 6, dtype=torch.float64))


def test_no_score_is_so_low_that_a_later_token_looks_better() -> None:
    layer = CausalAttention(11, 7).double()
    with torch.no_grad():
        layer.q_proj.weight.copy_(-layer.k_proj.weight)
    weights = layer.attention_weights(1e4 * torch.randn(6, 11, dtype=torch.float64))
    assert (weights.triu(1) == 0).all()
    assert weights[0, 0] == 1


@pytest.mark.parametrize("tokens", [1, 2, 300])
def test_there_is_no_longest_length(tokens: int) -> None:
    assert CausalAttention(4, 3)(torch.randn(tokens, 4)).shape == (tokens, 3)


def test_dropout_falls_on_the_weights_in_training_and_is_off_in_evaluation() -> None:
    layer = CausalAttention(11, 7, dropout=0.5).double()
    inputs = torch.randn(3, 40, 11, dtype=torch.float64)
    layer.eval()
    assert torch.equal(layer(inputs), layer(inputs))
    layer.train()
    assert not torch.equal(layer(inputs), layer(inputs))
    # The first token has one weight: dropped, or kept and doubled.
    value = layer.v_proj(inputs[:, 0])
    for _ in range(8):
        context = layer(inputs)[:, 0]
        kept = context.abs().sum(-1) > 0
        torch.testing.assert_close(context, torch.where(kept[:, None], 2 * value, 0.0))


def test_gradients_are_right_and_none_comes_from_a_later_token() -> None:
    layer = CausalAttention(3, 2, bias=True).double()
    inputs = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, inputs)
    layer(inputs)[:, 1].sum().backward()
    assert inputs.grad is not None
    assert (inputs.grad[:, 2:] == 0).all()
    assert (inputs.grad[:, :2] != 0).any()
