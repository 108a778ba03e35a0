"""Families that turn adjacent channels."""

from __future__ import annotations

from collections.abc import Mapping

from qkv.positions import Rope
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.family import Family, sizes
from qkv.spec.families.layer import all_but_every, causal, decoder, layer_window, spec_of


def _gptj(config: ModelConfig) -> AttentionSpec:
    return spec_of(config, mask=causal(), rope=Rope("adjacent", dims=config.whole("rotary_dim")))


def _cohere(config: ModelConfig) -> AttentionSpec:
    qk_norm = "head" if config.flag("use_qk_norm") else None
    return decoder(config, bias=config.flag("attention_bias"), pairing="adjacent", base=500000.0, qk_norm=qk_norm)


def _cohere2(config: ModelConfig) -> AttentionSpec:
    window = layer_window(config, all_but_every(config, 4))
    # Its full layers have no position at all.
    return decoder(
        config, bias=config.flag("attention_bias"), window=window, pairing="adjacent", rope=window is not None
    )


def _glm(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("attention_bias"), pairing="adjacent")


def _helium(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("attention_bias"), pairing="adjacent", base=100000.0)


def _ernie(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("use_bias"), pairing="adjacent", base=500000.0)


FAMILIES: Mapping[str, Family] = {
    "codegen": Family(_gptj, sizes(16, 4096, rotary_dim=64)),
    "cohere": Family(_cohere, sizes(64, 8192)),
    "cohere2": Family(_cohere2, sizes(64, 8192, sliding_window=4096)),
    "ernie4_5": Family(_ernie, sizes(16, 1024, 2, head_dim=128)),
    "glm": Family(_glm, sizes(32, 4096, 2, head_dim=128, attention_bias=True, partial_rotary_factor=0.5)),
    "glm4": Family(_glm, sizes(32, 4096, 2, head_dim=128, attention_bias=True, partial_rotary_factor=0.5)),
    "gptj": Family(_gptj, sizes(16, 4096, rotary_dim=64)),
    "helium": Family(_helium, sizes(20, 2560, head_dim=128)),
}
