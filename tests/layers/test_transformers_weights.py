"""Weights of transformers' attentions, read and written: what both give is compared here as well as by the bridge."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from drawn_layers import randomise
from qkv.errors import SpecError
from qkv.layers import Attention, LatentAttention, from_module, into_module
from qkv.masks import Mask
from qkv.positions import Rope
from qkv.spec import spec_from_config

transformers = pytest.importorskip("transformers")

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "rope_theta": 500.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Family:
    """An attention of transformers, and what its layer here is meant to be."""

    name: str
    prefix: str
    config: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Any:
        return importlib.import_module(f"transformers.models.{self.name}.modeling_{self.name}")

    def module(self) -> nn.Module:
        sizes = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "attn_implementation": "eager"}
        config = getattr(transformers, f"{self.prefix}Config")(**{**sizes, **self.config})
        torch.manual_seed(5)
        module = getattr(self.home, f"{self.prefix}Attention")(config, layer_idx=0).double().eval()
        randomise(module)
        return module

    def output(self, module: nn.Module, x: Tensor, mask: Mask) -> Tensor:
        """What it gives, with the rope that its own library makes for it."""
        tokens = x.shape[1]
        hidden = ~mask.dense(tokens, tokens, xp=torch)
        more: dict[str, Any] = {"attention_mask": torch.zeros(tokens, tokens).masked_fill(hidden, -torch.inf).double()}
        more["attention_mask"] = more["attention_mask"][None, None]
        if (rotary := getattr(self.home, f"{self.prefix}RotaryEmbedding", None)) is not None:
            more["position_embeddings"] = rotary(module.config)(x, torch.arange(tokens)[None])
        return module(x, **more)[0]


GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

FAMILIES = [
    Family("llama", "Llama", GROUPED, {"num_kv_heads": 2, "rope": Rope("halves")}),
    Family("llama", "Llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    Family("gpt2", "GPT2", expected={"rope": None, "causal": True}),
    Family("gpt_neox", "GPTNeoX", expected={"rope": Rope("halves", dims=2)}),
    Family("mistral", "Mistral", {**GROUPED, "sliding_window": 5}, {"window": 5}),
    Family("qwen3", "Qwen3", GROUPED),
    Family("olmo2", "Olmo2", {"num_key_value_heads": 2}),
    Family("gemma2", "Gemma2", {**GROUPED, "attn_logit_softcapping": 3.0}, {"softcap": 3.0}),
    Family("gpt_oss", "GptOss", {**GROUPED, "sliding_window": 5}, {"window": 5}),
    Family("phi3", "Phi3", {"num_key_value_heads": 2, "pad_token_id": 0}),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: f"{family.name} {sorted(family.config)}")
def test_weights_are_read_and_written(family: Family) -> None:
    module = family.module()
    x = torch.randn(2, 12, 48, dtype=torch.float64)
    layer = from_module(module)
    assert {name: getattr(layer, name) for name in family.expected} == family.expected
    torch.testing.assert_close(layer(x), family.output(module, x, layer.mask), rtol=0, atol=3e-6)

    randomise(layer)
    into_module(layer, module)
    torch.testing.assert_close(layer(x), family.output(module, x, layer.mask), rtol=0, atol=3e-6)


DEEPSEEKS = {
    "q_a_proj": "q_proj.0",
    "q_a_layernorm": "q_proj.1",
    "q_b_proj": "q_proj.2",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm",
    "kv_b_proj": "kv_up",
    "o_proj": "out_proj",
}
"""What the parts of deepseek's latent attention are called in the layer here."""


@pytest.mark.parametrize("query_latent_dim", [None, 7])
@pytest.mark.parametrize("adjacent", [False, True])
def test_latent_attention_is_deepseeks(query_latent_dim: int | None, adjacent: bool) -> None:
    ranks = {"kv_lora_rank": 9, "q_lora_rank": query_latent_dim, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
    family = Family(
        "deepseek_v3", "DeepseekV3", {**ranks, "rope_interleave": adjacent, "v_head_dim": 10, "num_key_value_heads": 6}
    )
    module = family.module()
    layer = LatentAttention(
        48,
        6,
        latent_dim=9,
        query_latent_dim=query_latent_dim,
        head_dim=8,
        rope_dim=4,
        value_dim=10,
        causal=True,
        rope="adjacent" if adjacent else "halves",
    ).double()
    named = {name.rpartition(".")[0]: array for name, array in module.state_dict().items()}
    layer.load_state_dict({f"{DEEPSEEKS.get(name, name)}.weight": array for name, array in named.items()})
    x = torch.randn(2, 12, 48, dtype=torch.float64)
    expected = family.output(module, x, layer.mask)
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=3e-6)
    cache = layer.new_cache()
    with torch.no_grad():
        chunks = torch.cat([layer(chunk, cache=cache) for chunk in x.split([5, 1, 6], dim=1)], dim=1)
    torch.testing.assert_close(chunks, expected, rtol=0, atol=3e-6)


def test_an_option_that_differs_is_named() -> None:
    module = FAMILIES[0].module()
    with pytest.raises(SpecError, match=r"differ, and with rope='halves' they don't"):
        from_module(module, rope="adjacent")
    layer = Attention(48, 6, head_dim=8, num_kv_heads=2, causal=True).double()
    with pytest.raises(SpecError, match=r"differ, and with rope='halves' they don't"):
        into_module(layer, module)


def test_small_weights_as_a_new_model_has_them_hide_no_difference() -> None:
    module = FAMILIES[0].module()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.01)
    with pytest.raises(SpecError, match=r"with scale=None they don't"):
        from_module(module, scale=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES[:4], ids=lambda family: f"{family.name} {sorted(family.config)}")
def test_qkv_check_finds_what_was_read_right_by_the_models_config(family: Family) -> None:
    module = family.module()
    report = qkv.check(from_module(module), spec_from_config(module.config.to_dict()))
    assert report.verdict == "right", qkv.as_text(report)
