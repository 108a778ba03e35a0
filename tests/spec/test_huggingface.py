"""Specs from the configs of real models: by family, by layer, in both spellings, and against the modules themselves."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from qkv.errors import SpecError
from qkv.masks import Causal, Everything, SlidingWindow
from qkv.positions import Alibi, Rope, RopeScaling, alibi_slopes
from qkv.spec import AttentionSpec, spec_from_config
from qkv.spec.families import FAMILIES


def spec_of(model_type: str, layer: int = 0, **changes: Any) -> AttentionSpec:
    """The spec of what transformers writes down for a model of that type."""
    return spec_from_config(CONFIG_MAPPING[model_type](**changes).to_dict(), layer)


def window_of(spec: AttentionSpec) -> int | None:
    return next((part.size for part in spec.mask.parts() if isinstance(part, SlidingWindow)), None)


# --- every family -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", FAMILIES)
def test_what_a_file_leaves_out_is_what_transformers_takes_it_to_be(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]()
    for layer in {0, 1, 2, 3, 5, config.num_hidden_layers - 1} & set(range(config.num_hidden_layers)):
        bare = spec_from_config({"model_type": model_type}, layer)
        assert bare == spec_from_config(config.to_dict(), layer)
        assert bare == spec_from_config(json.loads(config.to_json_string()), layer)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_sizes_are_read_by_whatever_name_they_have(model_type: str) -> None:
    sizes = {"hidden_size": 48, "num_attention_heads": 6}
    theirs = CONFIG_MAPPING[model_type]()
    sizes |= {name: 2 for name in ("num_key_value_heads", "num_kv_heads") if name in theirs.to_dict()}
    sizes |= {"rotary_dim": 4} if "rotary_dim" in theirs.to_dict() else {}
    config = CONFIG_MAPPING[model_type](**sizes)
    spec = spec_from_config(config.to_dict())
    assert (spec.num_heads, spec.embed_dim) == (6, 48)
    if model_type not in ("falcon", "gpt_bigcode"):  # the two have one head for all, whatever is written
        assert spec.kv_heads == (2 if "num_key_value_heads" in sizes else 6)
    # Some families have a default that doesn't depend on the others.
    assert spec.head_dim == (getattr(config, "head_dim", None) or 8)


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("llama", {"mask": Causal(), "rope": Rope(), "projection_bias": False, "scale": None, "qk_norm": None}),
        ("mistral", {"mask": Causal() & SlidingWindow(4096), "num_kv_heads": 8}),
        ("mixtral", {"mask": Causal(), "rope": Rope(base=1e6)}),
        ("qwen2", {"mask": Causal(), "projection_bias": True}),
        ("qwen3", {"qk_norm": "head", "head_dim": 128, "projection_bias": False}),
        ("gemma", {"head_dim": 256, "num_heads": 16, "embed_dim": 3072}),
        ("gemma2", {"softcap": 50.0, "num_kv_heads": 4, "mask": Causal() & SlidingWindow(4096)}),
        ("gemma3_text", {"softcap": None, "qk_norm": "head"}),
        ("gpt2", {"mask": Causal(), "rope": None, "projection_bias": True, "dropout_p": 0.1, "head_dim": 64}),
        ("gpt_neo", {"scale": 1.0, "projection_bias": False, "mask": Causal()}),
        ("gpt_neox", {"rope": Rope(dims=24), "projection_bias": True}),
        ("gptj", {"rope": Rope("adjacent", dims=64), "projection_bias": False}),
        ("codegen", {"rope": Rope("adjacent", dims=64)}),
        ("gpt_bigcode", {"num_kv_heads": 1, "projection_bias": True}),
        ("phi", {"rope": Rope(dims=32), "projection_bias": True}),
        ("phi3", {"rope": Rope(), "projection_bias": False, "mask": Causal()}),
        ("stablelm", {"rope": Rope(dims=20)}),
        ("persimmon", {"rope": Rope(dims=32), "qk_norm": "head"}),
        ("bloom", {"alibi": Alibi(), "rope": None, "projection_bias": True, "mask": Causal()}),
        ("mpt", {"alibi": Alibi(), "projection_bias": False}),
        ("falcon", {"num_heads": 71, "num_kv_heads": 1, "rope": Rope(), "alibi": None}),
        ("gpt_oss", {"sinks": True, "num_kv_heads": 8, "head_dim": 64, "mask": Causal() & SlidingWindow(128)}),
        ("bert", {"mask": Everything(), "projection_bias": True, "rope": None}),
        ("distilbert", {"mask": Everything(), "num_heads": 12, "head_dim": 64, "dropout_p": 0.1}),
        ("vit", {"mask": Everything(), "projection_bias": True}),
        ("opt", {"mask": Causal(), "projection_bias": True}),
        ("olmo2", {"qk_norm": "width"}),
        ("cohere", {"rope": Rope("adjacent", 500000.0), "qk_norm": None}),
        ("glm", {"rope": Rope("adjacent", dims=64), "projection_bias": True, "num_kv_heads": 2}),
        ("granite", {"scale": 1.0}),
        ("starcoder2", {"projection_bias": True, "num_kv_heads": 2}),
    ],
)
def test_the_family_as_its_code_computes_it(model_type: str, expected: Mapping[str, Any]) -> None:
    spec = spec_of(model_type)
    assert {name: getattr(spec, name) for name in expected} == expected


# --- options ----------------------------------------------------------------------------------------------------------


def test_scales() -> None:
    assert spec_of("gemma2", query_pre_attn_scalar=144).scale == 1 / 12
    assert spec_of("gemma2").scale is None  # 256 is its head_dim: the usual scale
    assert spec_of("gpt2", scale_attn_weights=False).scale == 1.0
    assert spec_of("gpt2", 3, scale_attn_by_inverse_layer_idx=True).scale == pytest.approx(1 / 32)
    assert spec_of("granite", attention_multiplier=0.0078125).scale == 0.0078125


@pytest.mark.parametrize(
    ("model_type", "changes", "windows"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}, [None, None, 64, 64]),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 2}, [None] * 4),
        ("qwen2_moe", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3}, [64, None, 64, None]),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 64}, [64] * 4),
        ("gemma2", {"sliding_window": 64}, [64, None, 64, None]),
        ("gemma2", {"sliding_window": 64, "layer_types": ["full_attention"] * 25 + ["sliding_attention"]}, [None] * 4),
        ("gemma3_text", {"sliding_window": 64, "sliding_window_pattern": 2}, [64, None, 64, None]),
        ("cohere2", {"sliding_window": 64}, [64, 64, 64, None]),
        ("gpt_oss", {"sliding_window": 64}, [64, None, 64, None]),
        ("gpt_neo", {"window_size": 64}, [None, 64, None, 64]),
        ("mistral", {"sliding_window": None}, [None] * 4),
        ("phi3", {"sliding_window": 64}, [64] * 4),
    ],
)
def test_windows_by_layer(model_type: str, changes: Mapping[str, Any], windows: list[int | None]) -> None:
    assert [window_of(spec_of(model_type, layer, **changes)) for layer in range(4)] == windows


def test_the_old_pattern_of_a_file_that_names_no_layers() -> None:
    old = {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 64, "sliding_window_pattern": 3}
    assert [window_of(spec_from_config(old, layer)) for layer in range(4)] == [64, 64, None, 64]


def test_gemma3_turns_full_and_sliding_layers_at_different_speeds_in_both_spellings() -> None:
    old = {
        "model_type": "gemma3_text", "num_hidden_layers": 12, "rope_theta": 2e6, "rope_local_base_freq": 5000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }  # fmt: skip
    new = CONFIG_MAPPING["gemma3_text"](**{k: v for k, v in old.items() if k != "model_type"}).to_dict()
    for config in (old, new):
        assert spec_from_config(config, 0).rope == Rope(base=5000.0)
        assert spec_from_config(config, 5).rope == Rope(base=2e6, scaling=RopeScaling("linear", 8.0))


def test_an_encoder_made_of_gemma3_sees_half_its_window_on_each_side() -> None:
    config = CONFIG_MAPPING["gemma3_text"](use_bidirectional_attention=True, sliding_window=512)
    assert spec_from_config(config.to_dict(), 0).mask == SlidingWindow(config.sliding_window) == SlidingWindow(257)
    assert spec_from_config(config.to_dict(), 5).mask == Everything()


def test_layers_without_rope() -> None:
    assert [spec_of("smollm3", layer).rope is None for layer in range(4)] == [False, False, False, True]
    assert [spec_of("cohere2", layer).rope is None for layer in range(4)] == [False, False, False, True]


def test_falcon_in_its_three_layouts_and_with_alibi() -> None:
    assert spec_of("falcon", multi_query=False).kv_heads == 71
    assert spec_of("falcon", new_decoder_architecture=True, num_attention_heads=8, num_kv_heads=2).kv_heads == 2
    spec = spec_of("falcon", alibi=True, num_attention_heads=4, hidden_size=64)
    assert spec.rope is None
    # Falcon scales alibi along with the scores: head_dim is 16.
    assert spec.alibi == Alibi(tuple(slope / 4 for slope in alibi_slopes(4)))


def test_mpts_own_options() -> None:
    options = {"attn_pdrop": 0.2, "softmax_scale": 0.3, "alibi_bias_max": 4, "qk_ln": True}
    published = {"model_type": "mpt", "n_heads": 4, "d_model": 32, "attn_config": options, "no_bias": False}
    spec = spec_from_config(published)
    assert (spec.dropout_p, spec.scale, spec.qk_norm, spec.projection_bias) == (0.2, 0.3, "width", True)
    assert spec.alibi is not None
    assert spec.alibi.slopes_for(4) == pytest.approx([2**-1, 2**-2, 2**-3, 2**-4])


def test_bert_as_decoder_is_causal() -> None:
    assert spec_of("bert", is_decoder=True).mask == Causal()


def test_norms_and_biases_are_read() -> None:
    assert spec_of("phi", qk_layernorm=True).qk_norm == "head"
    assert spec_of("stablelm", qk_layernorm=True, use_qkv_bias=True).projection_bias
    assert spec_of("cohere", use_qk_norm=True).qk_norm == "head"
    assert spec_of("llama", attention_bias=True).projection_bias
    assert not spec_of("opt", enable_bias=False).projection_bias


# --- rope -------------------------------------------------------------------------------------------------------------

SCALINGS: list[tuple[dict[str, Any], RopeScaling]] = [
    ({"rope_type": "linear", "factor": 2.0}, RopeScaling("linear", 2.0)),
    (
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 4096,
        },
        RopeScaling("llama3", 8.0, 4096),
    ),
    (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 16.0},
        RopeScaling("yarn", 4.0, 2048, beta_fast=16.0),
    ),
    (
        {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "mscale": 0.7,
            "mscale_all_dim": 1.0,
        },
        RopeScaling(
            "yarn", 4.0, 2048, attention_factor=(0.07 * math.log(4.0) + 1.0) / (0.1 * math.log(4.0) + 1.0)
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "ours"), SCALINGS, ids=lambda value: str(value)[:40])
def test_scaling_in_the_new_spelling_and_the_old(theirs: dict[str, Any], ours: RopeScaling) -> None:
    new = {"model_type": "llama", "rope_parameters": {"rope_theta": 5e5, **theirs}}
    old = {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": theirs}
    kind = theirs["rope_type"]
    oldest = {**old, "rope_scaling": {"type": kind, **{k: v for k, v in theirs.items() if k != "rope_type"}}}
    for config in (new, old, oldest):
        rope = spec_from_config(config).rope
        assert rope is not None
        assert rope.base == 5e5
        assert rope.scaling == ours


def test_yarns_lengths_are_taken_from_the_model_where_the_scaling_has_none() -> None:
    config = {"model_type": "llama", "max_position_embeddings": 4096, "rope_scaling": {"type": "yarn", "factor": 2.0}}
    assert spec_from_config(config).rope == Rope(scaling=RopeScaling("yarn", 2.0, 4096))
    known = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 1024}
    assert spec_from_config({**config, "rope_scaling": known}).rope == Rope(scaling=RopeScaling("yarn", 4.0, 1024))


def test_gpt_oss_ramps_between_whole_channels() -> None:
    rope = spec_of("gpt_oss").rope
    assert rope == Rope(base=150000.0, scaling=RopeScaling("yarn", 32.0, 4096, truncate=False))


def test_partial_rope_in_its_three_spellings() -> None:
    for spelled in (
        {"rotary_pct": 0.5},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
    ):
        config = {"model_type": "gpt_neox", "hidden_size": 32, "num_attention_heads": 2, **spelled}
        assert spec_from_config(config).rope == Rope(dims=8)


# --- whole files ------------------------------------------------------------------------------------------------------


def test_a_model_of_text_and_images_is_read_at_its_text() -> None:
    published = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_attention_heads": 16},
    }
    spec = spec_from_config(published)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.embed_dim) == (8, 4, 256, 2560)
    assert spec == spec_from_config(CONFIG_MAPPING["gemma3"](text_config=published["text_config"]).to_dict())
    assert spec_from_config({"model_type": "llava", "text_config": {"model_type": "llama"}}) == spec_of("llama")


@pytest.mark.parametrize(
    ("named", "model_type"),
    [
        ("GPT2LMHeadModel", "gpt2"),
        ("GPTNeoXForCausalLM", "gpt_neox"),
        ("GPTNeoForCausalLM", "gpt_neo"),
        ("Phi3ForCausalLM", "phi3"),
        ("XLMRobertaModel", "xlm-roberta"),
        ("BertForMaskedLM", "bert"),
    ],
)
def test_a_file_without_a_type_is_known_by_the_models_class(named: str, model_type: str) -> None:
    assert spec_from_config({"architectures": [named]}) == spec_from_config({"model_type": model_type})


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"model_type": "mistrall"}, ["no family of models is known as 'mistrall'", "'mistral'", "--heads 6"]),
    ({"architectures": ["Qwen2VLForConditionalGeneration"]}, ["'Qwen2VL'"]),
    ({}, ["no family of models is known as ''"]),
    ({"architectures": 3}, ["architectures is 3 (a whole number)", '["LlamaForCausalLM"]']),
    ({"architectures": [None]}, ["architectures is [null] (a list)"]),
    ({"model_type": "llama", "num_attention_heads": "32"}, ['num_attention_heads is "32" (text)', "--heads"]),
    ({"model_type": "llama", "num_attention_heads": 0}, ["num_attention_heads is 0"]),
    ({"model_type": "llama", "hidden_size": 100}, ["hidden_size 100 is no multiple of num_attention_heads 32"]),
    ({"model_type": "llama", "num_key_value_heads": 5}, ["(llama)", "num_kv_heads is 5"]),
    ({"model_type": "llama", "attention_bias": 1}, ["attention_bias is 1", "true or false"]),
    ({"model_type": "llama", "rope_theta": "big"}, ["rope_theta is"]),
    ({"model_type": "llama", "rope_scaling": [2]}, ["rope_scaling is [2]", "an object"]),
    (
        {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        ["'dynamic'", "linear, llama3, yarn"],
    ),
    ({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": "2"}}, ['factor is "2"']),
    ({"model_type": "olmo", "clip_qkv": 8.0}, ["clip_qkv is 8.0", "a spec can't say this"]),
    ({"model_type": "mpt", "attn_config": {"clip_qkv": 6}}, ["attn_config", "clip_qkv is 6"]),
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, ['position_embedding_type is "relative_key"']),
    ({"model_type": "gemma2", "layer_types": []}, ["layer_types is []", "one entry per layer"]),
    ({"model_type": "gemma2", "query_pre_attn_scalar": 0}, ["query_pre_attn_scalar is 0"]),
    ({"model_type": "gpt_neo", "attention_types": "global"}, ["attention_types is 'global'"]),
    ({"model_type": "llava", "text_config": {"model_type": "lama"}}, ["text_config", "'lama'", "'llama'"]),
]


@pytest.mark.parametrize(("config", "says"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_said_with_the_way_out(config: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_config(config, where="config.json")
    for part in ("config.json", *says):
        assert part in str(caught.value)


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(SpecError, match="no layer 32; the model has layers 0 to 31"):
        spec_of("llama", 32)


JUNK = st.sampled_from([None, True, -1, 0, 3, 1.5, "x", [], [1], {}, {"rope_type": 3}, {"full_attention": 1}])
NAMES = sorted(set(FAMILIES["gpt_oss"].defaults) | {
    "rope_scaling", "rope_theta", "layer_types", "num_hidden_layers", "attn_config", "attention_types", "alibi",
    "query_pre_attn_scalar", "partial_rotary_factor", "attention_dropout", "no_rope_layers", "max_window_layers",
    "use_sliding_window", "attn_logit_softcapping", "rotary_dim", "window_size", "architectures", "text_config",
})  # fmt: skip


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=3))
def test_junk_ends_in_a_spec_or_a_spec_error(model_type: str, junk: dict[str, Any]) -> None:
    with suppress(SpecError):
        spec_from_config({"model_type": model_type, **junk}, where="config.json")


# --- against the modules themselves -----------------------------------------------------------------------------------

TINY: dict[str, Any] = {"hidden_size": 24, "num_attention_heads": 6, "num_hidden_layers": 4, "vocab_size": 32}


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    ("module", "name", "changes"),
    [
        ("llama.modeling_llama", "LlamaAttention", {"num_key_value_heads": 2}),
        ("qwen3.modeling_qwen3", "Qwen3Attention", {"num_key_value_heads": 3, "head_dim": 8}),
        ("gemma2.modeling_gemma2", "Gemma2Attention", {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}),
        ("gpt_oss.modeling_gpt_oss", "GptOssAttention", {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}),
        ("gpt2.modeling_gpt2", "GPT2Attention", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt_neox.modeling_gpt_neox", "GPTNeoXAttention", {"rotary_pct": 0.5}),
        ("phi.modeling_phi", "PhiAttention", {}),
        ("vit.modeling_vit", "ViTAttention", {"qkv_bias": False}),
    ],
)
def test_the_spec_says_what_the_module_has(module: str, name: str, changes: dict[str, Any], layer: int) -> None:
    family = module.partition(".")[0]
    config = CONFIG_MAPPING[family](**TINY, **changes)
    cls = getattr(importlib.import_module(f"transformers.models.{module}"), name)
    attention = cls(config) if family == "vit" else cls(config, layer_idx=layer)
    spec = spec_from_config(config.to_dict(), layer)
    head_dim = getattr(attention, "head_dim", None) or attention.head_size
    assert spec.head_dim == head_dim
    assert spec.scale_for(head_dim) == pytest.approx(attention.scaling)
    assert spec.masks(Causal) == attention.is_causal
    assert spec.group_size == getattr(attention, "num_key_value_groups", 1)
    assert window_of(spec) == getattr(attention, "sliding_window", None)
    assert spec.sinks == hasattr(attention, "sinks")
    assert (spec.qk_norm == "head") == hasattr(attention, "q_norm")
    assert spec.softcap == getattr(attention, "attn_logit_softcapping", None)
    biased = next(m for n, m in attention.named_modules() if n in ("q_proj", "c_attn", "query_key_value"))
    assert spec.projection_bias == (biased.bias is not None)
    if hasattr(attention, "rotary_ndims"):
        assert spec.rope is not None
        assert spec.rope.rotary_dims(head_dim) == attention.rotary_ndims
