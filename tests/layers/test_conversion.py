from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drawn_layers import randomise
from qkv.errors import SpecError
from qkv.layers import Attention, MultiHeadAttention, from_module, from_torch, into_module, to_torch

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


@pytest.mark.parametrize("kind", [MultiHeadAttention, Attention])
def test_a_model_loads_the_state_dict_of_a_model_around_torchs_layer(kind: type[nn.Module]) -> None:
    ours = nn.ModuleDict({"attn": kind(24, 6, bias=True), "norm": nn.LayerNorm(24)}).double()
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
    assert layer.dropout == 0.25
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


# --- back to torch ----------------------------------------------------------------------------------------------------


def randomised(layer: Attention) -> Attention:
    randomise(layer.double())
    return layer.eval()


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": True}, {"bias": True, "out_bias": False}, {"kdim": 10, "vdim": 14, "out_bias": True}],
    ids=str,
)
def test_torchs_layer_gives_what_the_layer_gives(options: dict[str, Any]) -> None:
    layer = randomised(Attention(24, 6, dropout=0.25, **options))
    mha = to_torch(layer)
    query, key, value = inputs_of(mha)
    torch.testing.assert_close(mha(query, key, value)[0], layer(query, key, value), rtol=0, atol=1e-12)
    assert (mha.dropout, mha.training) == (0.25, False)
    again = from_torch(mha)
    torch.testing.assert_close(again(query, key, value), layer(query, key, value), rtol=0, atol=1e-12)


def test_a_mask_goes_to_torch_with_each_call() -> None:
    layer = randomised(Attention(24, 6, causal=True, window=3))
    inputs = torch.randn(2, 7, 24, dtype=torch.float64)
    hidden = ~layer.mask.dense(7, 7, xp=torch)
    torch.testing.assert_close(
        to_torch(layer)(inputs, inputs, inputs, attn_mask=hidden)[0], layer(inputs), rtol=0, atol=1e-12
    )


def test_what_torchs_layer_lacks_is_refused_by_name() -> None:
    layer = Attention(24, 6, num_kv_heads=2, rope="halves", sinks=True, head_dim=4)
    with pytest.raises(SpecError, match=r"has no option for this layer's num_kv_heads, rope, sinks; keep"):
        to_torch(layer)


# --- the article's modules --------------------------------------------------------------------------------------------


class OneHead(nn.Module):
    """For one sequence at a time, with its weights as matrices."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.rand(d_in, d_out)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        keys, queries, values = x @ self.W_key, x @ self.W_query, x @ self.W_value
        attn_scores = queries @ keys.T
        return torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1) @ values


class SeveralHeads(nn.Module):
    """With a causal mask for at most so many tokens."""

    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, bias: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=bias) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        b, tokens, _ = x.shape
        queries, keys, values = (
            one(x).view(b, tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for one in (self.W_query, self.W_key, self.W_value)
        )
        attn_scores = queries @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5
        attn_scores = attn_scores.masked_fill(self.mask.bool()[:tokens, :tokens], -torch.inf)
        context = self.dropout(torch.softmax(attn_scores, dim=-1)) @ values
        return self.out_proj(context.transpose(1, 2).reshape(b, tokens, -1))


def test_an_articles_matrices_are_read_and_written() -> None:
    module = OneHead(10, 7).double()
    inputs = torch.randn(5, 10, dtype=torch.float64)
    layer = from_module(module)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)
    randomise(layer)
    into_module(layer, module)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)


@pytest.mark.parametrize("bias", [False, True])
def test_an_articles_class_is_read_and_written(bias: bool) -> None:
    module = SeveralHeads(10, 24, 6, 0.1, 6, bias).double().eval()
    inputs = torch.randn(2, 6, 10, dtype=torch.float64)
    layer = from_module(module)
    assert (layer.causal, layer.dropout, layer.num_heads, layer.training) == (True, 0.1, 6, False)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)
    randomise(layer)
    into_module(layer, module)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)


class CausalFused(nn.Module):
    """With one projection for all three, and the mask in what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.n_head = 4
        self.c_attn, self.c_proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            one.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for one in self.c_attn(x).chunk(3, dim=-1)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(context.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("make", [CausalFused, lambda: MultiHeadAttention(12, 4, causal=True, num_kv_heads=2)])
def test_other_ways_to_store_the_same(make: Any) -> None:
    module, inputs = make().double(), torch.randn(2, 6, 12, dtype=torch.float64)
    options = {} if isinstance(module, CausalFused) else {"num_heads": 4}
    layer = from_module(module, **options)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)
    randomise(layer)
    into_module(layer, module)
    torch.testing.assert_close(layer(inputs), module(inputs), rtol=0, atol=1e-13)


class Unscaled(OneHead):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax((x @ self.W_query) @ (x @ self.W_key).T, dim=-1) @ (x @ self.W_value)


class TurnedSoftmax(OneHead):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax((x @ self.W_query) @ (x @ self.W_key).T, dim=0) @ (x @ self.W_value)


def test_a_module_that_computes_something_else_is_refused_with_the_option_that_differs() -> None:
    with pytest.raises(SpecError, match=r"differ, and with scale=1\.0 they don't\.\nWrite scale=1\.0"):
        from_module(Unscaled(10, 7))
    assert from_module(Unscaled(10, 7), scale=1.0).scale == 1.0
    with pytest.raises(SpecError, match=r"with causal=True they don't"):
        from_module(SeveralHeads(10, 24, 6, 0.1, 6, False), causal=False)
    with pytest.raises(SpecError, match=r"differ by up to .*; no one option explains it"):
        from_module(TurnedSoftmax(10, 7))


def test_a_module_that_a_layer_does_not_fit_is_left_as_it_was() -> None:
    module = SeveralHeads(10, 24, 6, 0.1, 6, bias=False).double()
    before = {name: array.clone() for name, array in module.state_dict().items()}
    for options, words in (
        ({"out_dim": 24, "head_dim": 4, "bias": True}, r"W_key\.bias, W_query\.bias, W_value\.bias: only one of"),
        ({"out_dim": 24, "head_dim": 5, "out_bias": True}, r"W_query\.weight is \(24, 10\) there, and .*\(30, 10\)"),
        ({"out_dim": 24, "head_dim": 4, "out_bias": True}, r"with causal=True they don't"),
    ):
        with pytest.raises(SpecError, match=words):
            into_module(randomised(Attention(10, 6, **options)), module)
    assert all(torch.equal(array, before[name]) for name, array in module.state_dict().items())


def test_weights_in_no_known_way_are_refused_with_what_there_is() -> None:
    with pytest.raises(SpecError, match=r"its parameters: 0\.weight, 0\.bias\.\nHand over the attention itself"):
        from_module(nn.Sequential(nn.Linear(3, 3)))
    module = SeveralHeads(10, 24, 6, 0.1, 6, bias=False)
    module.gate = nn.Parameter(torch.ones(3))
    with pytest.raises(SpecError, match=r"the module also learns gate"):
        from_module(module)
