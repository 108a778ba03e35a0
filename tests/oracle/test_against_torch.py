"""PyTorch's own attentions agree with the oracle: a third opinion, from people who never saw it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from drawn import Call
from qkv.masks import Causal
from qkv.oracle import Inputs, Linear, Parameters, run_stages
from qkv.spec import AttentionSpec

BATCH, QUERY_LEN, KEY_LEN, HEADS = 2, 5, 7, 6


@pytest.mark.parametrize(
    ("spec", "query_len", "arguments"),
    [
        pytest.param(AttentionSpec(HEADS), QUERY_LEN, {}, id="plain"),
        pytest.param(AttentionSpec(HEADS, scale=0.3), QUERY_LEN, {"scale": 0.3}, id="scale"),
        pytest.param(AttentionSpec(HEADS, value_dim=12), QUERY_LEN, {}, id="value_dim"),
        pytest.param(AttentionSpec(HEADS, 2), QUERY_LEN, {"enable_gqa": True}, id="grouped"),
        pytest.param(AttentionSpec(HEADS, mask=Causal()), KEY_LEN, {"is_causal": True}, id="causal"),
        pytest.param(
            AttentionSpec(HEADS, mask=Causal(), query_offset="top_left"), QUERY_LEN, {"is_causal": True}, id="top left"
        ),
        pytest.param(
            AttentionSpec(HEADS, mask=Causal()),
            QUERY_LEN,
            {"attn_mask": torch.ones(QUERY_LEN, KEY_LEN, dtype=torch.bool).tril(KEY_LEN - QUERY_LEN)},
            id="bottom right",
        ),
    ],
)
def test_scaled_dot_product_attention(spec: AttentionSpec, query_len: int, arguments: dict[str, Any]) -> None:
    inputs = Call(query_len=query_len, key_len=KEY_LEN).inputs(spec).but(parameters=None).map(torch.from_numpy)
    context = functional.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value, **arguments)
    torch.testing.assert_close(run_stages(spec, inputs).output, _merged(context), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("extra", ["may_attend", "bias"])
def test_a_mask_and_a_bias_handed_to_scaled_dot_product_attention(extra: Any) -> None:
    spec = AttentionSpec(HEADS)
    call = Call(query_len=QUERY_LEN, key_len=KEY_LEN, extras=frozenset({extra}), seed=4)
    inputs = call.inputs(spec).but(parameters=None).map(torch.from_numpy)
    mask = getattr(inputs, extra).expand(BATCH, HEADS, QUERY_LEN, KEY_LEN)
    context = functional.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value, mask)
    torch.testing.assert_close(run_stages(spec, inputs).output, _merged(context), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [(None, None), (20, 22)], ids=["one width", "key and value of other widths"])
def test_multi_head_attention(bias: bool, widths: tuple[int | None, int | None]) -> None:
    torch.manual_seed(0)
    embed_dim, heads = 24, 4
    key_width, value_width = widths
    module = torch.nn.MultiheadAttention(
        embed_dim, heads, bias=bias, kdim=key_width, vdim=value_width, batch_first=True, dtype=torch.float64
    ).eval()
    with torch.no_grad():  # its biases begin at zero
        for parameter in module.parameters():
            parameter.normal_()
    query = torch.randn(BATCH, QUERY_LEN, embed_dim, dtype=torch.float64)
    key = torch.randn(BATCH, KEY_LEN, key_width or embed_dim, dtype=torch.float64)
    value = torch.randn(BATCH, KEY_LEN, value_width or embed_dim, dtype=torch.float64)
    is_token = torch.arange(KEY_LEN) < torch.tensor([[KEY_LEN], [4]])
    output, weights = module(query, key, value, key_padding_mask=~is_token, average_attn_weights=False)
    inputs = Inputs(x=query, source=key, value_source=value, parameters=_parameters(module), is_token=is_token)
    run = run_stages(AttentionSpec(heads, projection_bias=bias), inputs)
    torch.testing.assert_close(run.weights, weights, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run.output, output, rtol=1e-12, atol=1e-12)


def _parameters(module: torch.nn.MultiheadAttention) -> Parameters:
    if module.in_proj_weight is None:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    else:
        weights = module.in_proj_weight.chunk(3)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    out_proj = Linear(module.out_proj.weight, module.out_proj.bias)
    return Parameters(*(Linear(w, b) for w, b in zip(weights, biases, strict=True)), out_proj)


def _merged(context: torch.Tensor) -> torch.Tensor:
    return context.transpose(1, 2).flatten(2)
