from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import qkv
from drawn_layers import EMBED, drawn_layer_specs, layer_of, parameters_of, randomise, tokens
from qkv.errors import ShapeError, SpecError
from qkv.layers import Attention, MultiHeadAttention
from qkv.masks import Everything
from qkv.oracle import Inputs, run_stages
from qkv.positions import Rope, RopeScaling
from qkv.spec import AttentionSpec

EVERY = AttentionSpec(
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    embed_dim=EMBED,
    mask=qkv.causal() & qkv.window(5),
    rope=Rope("halves", dims=4),
    softcap=2.0,
    sinks=True,
    qk_norm="head",
    projection_bias=True,
)
"""Nearly every option at once."""


@settings(max_examples=6)
@given(spec=drawn_layer_specs(), seed=st.integers(0, 2**32 - 1), masked=st.booleans())
def test_output_weights_and_gradients_are_the_oracles(spec: AttentionSpec, seed: int, masked: bool) -> None:
    layer, x = layer_of(spec, seed), tokens(2, 9, EMBED).requires_grad_()
    may_attend = torch.rand(2, 1, 9, 9) < 0.7 if masked else None
    parameters = [x, *layer.parameters()]
    run = run_stages(spec, Inputs(x=x, parameters=parameters_of(layer), sinks=layer.sinks, may_attend=may_attend))
    output, weights = layer(x, mask=may_attend, need_weights=True)
    torch.testing.assert_close(output, run.output, rtol=0, atol=1e-11)
    torch.testing.assert_close(weights, run.weights, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(x, mask=may_attend), run.output, rtol=0, atol=1e-11)

    upstream = torch.randn_like(output)
    wanted = torch.autograd.grad(run.output, parameters, upstream)
    given = torch.autograd.grad(layer(x, mask=may_attend), parameters, upstream)
    for name, one, other in zip(["x", *(name for name, _ in layer.named_parameters())], given, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("query_len", [1, 4, 7])
def test_cross_attention_with_keys_and_values_of_other_widths(query_len: int) -> None:
    spec = EVERY.but(value_dim=10)
    layer = layer_of(spec, kdim=18, vdim=14)
    query, key, value = tokens(2, query_len, EMBED), tokens(2, 7, 18), tokens(2, 7, 14)
    inputs = Inputs(
        x=query, source=key, value_source=value, parameters=parameters_of(layer), sinks=layer.sinks.detach()
    )
    run = run_stages(spec, inputs)
    torch.testing.assert_close(layer(query, key, value), run.output, rtol=0, atol=1e-11)
    torch.testing.assert_close(layer.attention_weights(query, key), run.weights, rtol=0, atol=1e-12)


SHARED: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "num_kv_heads": 2, "rope": "halves", "bias": True},
    {"rope": "adjacent", "head_dim": 6},
]


@pytest.mark.parametrize("options", SHARED, ids=str)
def test_it_goes_in_the_place_of_the_rung_that_makes_its_weights(options: dict[str, Any]) -> None:
    rung, layer = MultiHeadAttention(48, 6, **options).double(), Attention(48, 6, **options).double()
    layer.load_state_dict(rung.state_dict())
    query, key = tokens(2, 5, 48), tokens(2, 7, 48, seed=2)
    table = torch.rand(6, 5, 7) < 0.7
    for mask in (None, table, table[0], torch.rand(2, 1, 1, 7) < 0.7):
        torch.testing.assert_close(layer(query, key, mask=mask), rung(query, key, mask=mask), rtol=0, atol=1e-13)
    torch.testing.assert_close(layer(query[0]), rung(query[0]), rtol=0, atol=1e-13)
    weights = layer.attention_weights(query[0], mask=table[..., :5])
    torch.testing.assert_close(weights, rung.attention_weights(query[0], mask=table[..., :5]), rtol=0, atol=1e-13)


def test_a_mask_object_of_a_call_is_joined_with_the_layers_own() -> None:
    layer = layer_of(EVERY)
    x = tokens(2, 9, EMBED)
    own = layer.mask.dense(9, 9, xp=torch)
    for mask in (qkv.padding([9, 5]), qkv.documents([0, 0, 0, 1, 1, 1, 1, 2, 2])):
        joined = mask.dense(9, 9, xp=torch) & own
        table = joined if joined.ndim == 4 else joined[None, None]
        bare = layer_of(EVERY.but(mask=Everything()))
        torch.testing.assert_close(layer(x, mask=mask), bare(x, mask=table), rtol=0, atol=1e-12)


def test_a_query_that_may_attend_to_nothing_gets_the_bias_of_the_output_and_sends_no_gradient() -> None:
    layer = layer_of(EVERY.but(sinks=False))
    x = tokens(2, 5, EMBED).requires_grad_()
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[3] = False
    output = layer(x, mask=mask)
    assert torch.equal(output[:, 3], layer.out_proj.bias.expand(2, EMBED))
    output[:, 3].sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


def test_causal_and_window_are_read_from_the_mask() -> None:
    layer = Attention(12, 3, mask=qkv.causal() & qkv.window(7), window=9)
    assert (layer.causal, layer.window) == (True, 7)
    assert (Attention(12, 3).causal, Attention(12, 3).window) == (False, None)
    assert not Attention(12, 3, mask=qkv.causal() | qkv.prefix(2)).causal


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_turns_by_exact_angles(dtype: torch.dtype) -> None:
    spec = EVERY.but(rope=Rope("halves"), softcap=None)
    layer, exact = Attention.of_spec(spec).to(dtype).eval(), layer_of(spec)
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())
    x = tokens(1, 2400, EMBED).to(dtype)  # half precision has no number between 2048 and 2050
    output, expected = layer(x[:, -1:], x), exact(x[:, -1:].double(), x.double())
    assert output.dtype == dtype
    assert (output.double() - expected).abs().max() < 6 * torch.finfo(dtype).eps


def test_dropout_falls_on_the_weights_in_training_only() -> None:
    layer = Attention(12, 4, dropout=0.3)
    x = torch.randn(2, 5, 12)
    assert torch.equal(layer.eval()(x), layer(x))
    assert not torch.equal(layer.train()(x), layer(x))


def test_a_layer_is_compiled_saved_and_copied() -> None:
    layer = layer_of(EVERY)
    other = Attention.of_spec(EVERY).double()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(tokens(2, 9, EMBED)), other(tokens(2, 9, EMBED)))
    assert {name.partition(".")[0] for name in layer.state_dict()} == {
        "q_proj", "k_proj", "v_proj", "out_proj", "q_norm", "k_norm", "sinks",
    }  # fmt: skip


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope": "half"}, "did you mean 'halves'"),
    ({"rope": Rope(dims=6)}, "Write dims=4"),
    ({"head_dim": 5, "rope": "halves"}, "Write head_dim=6, or rope=None"),
    ({"qk_norm": "heads"}, "write 'head', 'width' or None"),
    ({"window": 0}, "it counts the query itself"),
    ({"num_kv_heads": 2}, "Write num_kv_heads=1"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=str)
def test_an_option_that_cannot_be_is_refused_with_one_that_can(
    options: dict[str, Any], words: str, unchecked: None
) -> None:
    with pytest.raises(SpecError, match=words):
        Attention(12, 3, **options)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (AttentionSpec(), "Write embed_dim="),
        (AttentionSpec(embed_dim=8, query_offset="top_left"), "query_offset"),
        (AttentionSpec(embed_dim=8, empty_row="nan"), "empty_row"),
    ],
)
def test_a_spec_that_no_option_says_is_refused(spec: AttentionSpec, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Attention.of_spec(spec)


def test_a_mask_of_a_call_is_checked(unchecked: None) -> None:
    layer = Attention(12, 3, causal=True)
    with pytest.raises(TypeError, match=r"write mask\.bool\(\)"):
        layer(torch.randn(2, 5, 12), mask=torch.ones(5, 5))
    with pytest.raises(ShapeError, match=r"must broadcast to the scores, \(2, 3, 5, 5\)"):
        layer(torch.randn(2, 5, 12), mask=torch.ones(5, 4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("kind", "scaling"),
    [
        ("linear", RopeScaling("linear", 4.0)),
        ("llama3", RopeScaling("llama3", 8.0, 16)),
        ("yarn", RopeScaling("yarn", 4.0, 16)),
    ],
)
def test_scaled_frequencies_are_those_of_transformers(kind: str, scaling: RopeScaling) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    from qkv.layers.rope import turned

    parameters: dict[str, Any] = {"rope_type": kind, "factor": scaling.factor, "rope_theta": 300.0}
    if kind != "linear":
        parameters["original_max_position_embeddings"] = 16
    if kind == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = transformers.LlamaConfig(
        hidden_size=96, num_attention_heads=6, max_position_embeddings=64, rope_parameters=parameters
    )
    heads = tokens(2, 6, 30, 16).float()
    cos, sin = LlamaRotaryEmbedding(config)(heads, torch.arange(30)[None])
    expected, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    rope = Rope("halves", base=300.0, scaling=scaling)
    torch.testing.assert_close(turned(heads, 0, rope), expected, rtol=0, atol=1e-5)


CHECKED = [
    EVERY,
    AttentionSpec(num_heads=6, num_kv_heads=3, head_dim=8, embed_dim=EMBED, rope=Rope("adjacent"), qk_norm="width"),
]


@pytest.mark.parametrize("spec", CHECKED, ids=str)
def test_qkv_check_finds_it_right_with_a_cache_too(spec: AttentionSpec) -> None:
    report = qkv.check(layer_of(spec), spec)
    assert report.verdict == "right", qkv.as_text(report)
    assert any("cache" in probe.name or "chunk" in probe.name for probe in report.probes)


@pytest.mark.slow
@settings(max_examples=12)
@given(spec=drawn_layer_specs())
def test_qkv_check_finds_a_drawn_one_right(spec: AttentionSpec) -> None:
    report = qkv.check(layer_of(spec), spec)
    assert report.verdict == "right", qkv.as_text(report)


def test_parameters_are_random_before_a_comparison() -> None:
    layer = Attention.of_spec(EVERY)
    randomise(layer)
    assert all((parameter != 0).all() for parameter in layer.parameters())
