from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.errors import SpecError
from qkv.layers import MultiHeadAttention, from_torch

SETTINGS = {
    "plain": {},
    "no bias": {"bias": False},
    "other widths": {"kdim": 10, "vdim": 14},
    "other widths, no bias": {"kdim": 10, "vdim": 14, "bias": False},
}


def torch_layer(**settings: Any) -> nn.MultiheadAttention:
    mha = nn.MultiheadAttention(24, 6, batch_first=True, dtype=torch.float64, **settings).eval()
    with torch.no_grad():
        for name, parameter in mha.named_parameters():
            if "bias" in name:  # zero when new, which would hide a bias that is lost
                parameter.normal_()
    return mha


def inputs_of(mha: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(
        torch.randn(3, length, width, dtype=torch.float64) for length, width in ((5, 24), (7, mha.kdim), (7, mha.vdim))
    )


@pytest.fixture(params=SETTINGS)
def mha(request: pytest.FixtureRequest) -> nn.MultiheadAttention:
    return torch_layer(**SETTINGS[request.param])


def test_the_copy_gives_what_torch_gives(mha: nn.MultiheadAttention) -> None:
    query, key, value = inputs_of(mha)
    output, weights = mha(query, key, value, average_attn_weights=False)
    layer = from_torch(mha)
    torch.testing.assert_close(layer(query, key, value), output, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer.attention_weights(query, key), weights, rtol=0, atol=1e-12)


def test_masks_mean_the_opposite_and_hide_the_same(mha: nn.MultiheadAttention) -> None:
    query, key, value = inputs_of(mha)
    hidden = torch.rand(5, 7) < 0.4
    hidden[:, 0] = False
    padded = torch.zeros(3, 7, dtype=torch.bool)
    padded[1, 5:] = True
    padded[2, 2:] = True
    output, _ = mha(query, key, value, key_padding_mask=padded, attn_mask=hidden)
    layer = from_torch(mha)
    mask = ~hidden & ~padded[:, None, None, :]
    torch.testing.assert_close(layer(query, key, value, mask), output, rtol=0, atol=1e-12)


def test_causal_is_torchs_square_subsequent_mask() -> None:
    mha = torch_layer()
    inputs = torch.randn(3, 5, 24, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    output, _ = mha(inputs, inputs, inputs, attn_mask=mask, is_causal=True)
    torch.testing.assert_close(from_torch(mha, causal=True)(inputs), output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_loads_torchs_state_dict_as_it_is(bias: bool) -> None:
    mha = torch_layer(bias=bias)
    layer = MultiHeadAttention(24, 6, bias=bias).double()
    saved = mha.state_dict()
    assert not layer.load_state_dict(saved).missing_keys
    assert set(saved) == set(mha.state_dict()), "the caller's state dict is left alone"
    inputs = torch.randn(3, 5, 24, dtype=torch.float64)
    torch.testing.assert_close(layer(inputs), mha(inputs, inputs, inputs)[0], rtol=0, atol=1e-12)


def test_a_model_loads_the_state_dict_of_a_model_around_torchs_layer() -> None:
    ours = nn.ModuleDict({"attn": MultiHeadAttention(24, 6, bias=True), "norm": nn.LayerNorm(24)}).double()
    theirs = nn.ModuleDict({"attn": torch_layer(), "norm": nn.LayerNorm(24).double()})
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(3, 5, 24, dtype=torch.float64)
    torch.testing.assert_close(ours["attn"](inputs), theirs["attn"](inputs, inputs, inputs)[0], rtol=0, atol=1e-12)


def test_its_own_state_dict_is_read_back() -> None:
    layer, other = (MultiHeadAttention(24, 6, num_kv_heads=2, bias=True) for _ in range(2))
    other.load_state_dict(layer.state_dict())
    inputs = torch.randn(3, 5, 24)
    assert torch.equal(layer(inputs), other(inputs))


def test_the_copy_stands_on_its_own_and_keeps_dtype_mode_and_dropout() -> None:
    mha = nn.MultiheadAttention(24, 6, dropout=0.25, dtype=torch.bfloat16)
    layer = from_torch(mha)
    assert layer.training
    assert layer.dropout.p == 0.25
    assert layer.q_proj.weight.dtype == torch.bfloat16
    assert not from_torch(mha.eval()).training
    with torch.no_grad():
        mha.in_proj_weight.zero_()
        mha.out_proj.weight.zero_()
    assert all((parameter != 0).any() for name, parameter in layer.named_parameters() if "weight" in name)


@pytest.mark.parametrize("setting", ["add_bias_kv", "add_zero_attn"])
def test_keys_of_torchs_own_making_are_refused(setting: str) -> None:
    with pytest.raises(SpecError, match=r"Build it with add_bias_kv=False, add_zero_attn=False\."):
        from_torch(nn.MultiheadAttention(24, 6, **{setting: True}))
