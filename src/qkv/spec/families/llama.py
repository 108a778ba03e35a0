"""Llama and what came of it: causal, rope on halves, grouped heads."""

from __future__ import annotations

from collections.abc import Mapping

from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.family import Family, sizes
from qkv.spec.families.layer import all_but_every, decoder, layer_type_of, layer_window, unusual, without_old_scaling


def _llama(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("attention_bias"))


def _mistral(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=False, window=config.whole("sliding_window"))


def _mixtral(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=False, window=config.whole("sliding_window"), base=1e6)


def _ministral(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=False, window=layer_window(config, slides=True))


def _qwen_window(config: ModelConfig, slides: bool) -> int | None:
    return layer_window(config, slides) if config.flag("use_sliding_window") else None


def _above_max_window_layers(config: ModelConfig) -> bool:
    return config.layer >= (config.whole("max_window_layers") or 0)


def _qwen2(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=True, window=_qwen_window(config, _above_max_window_layers(config)))


def _qwen2_moe(config: ModelConfig) -> AttentionSpec:
    slides = config.layer % 2 == 0 and not _above_max_window_layers(config)
    return decoder(config, bias=config.flag("qkv_bias"), window=_qwen_window(config, slides))


def _qwen3(config: ModelConfig) -> AttentionSpec:
    window = _qwen_window(config, _above_max_window_layers(config))
    return decoder(config, bias=config.flag("attention_bias"), window=window, qk_norm="head")


def _qwen3_moe(config: ModelConfig) -> AttentionSpec:
    window = config.whole("sliding_window") if config.flag("use_sliding_window") else None
    return decoder(config, bias=config.flag("attention_bias"), window=window, qk_norm="head")


def _smollm3(config: ModelConfig) -> AttentionSpec:
    turns = config.of_layer("no_rope_layers")
    if turns is None:
        turns = (config.layer + 1) % (config.whole("no_rope_layer_interval") or 4) != 0
    window = _qwen_window(config, slides=not turns)
    return decoder(config, bias=config.flag("attention_bias"), window=window, rope=bool(turns), base=2e6)


def _granite(config: ModelConfig) -> AttentionSpec:
    scale = unusual(config, config.number("attention_multiplier") or 1.0)
    return decoder(config, bias=config.flag("attention_bias"), scale=scale)


def _starcoder2(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("use_bias"), window=config.whole("sliding_window"))


def _olmo(config: ModelConfig) -> AttentionSpec:
    config.refuse("clip_qkv", "query, key and value are clipped there")
    return _llama(config)


def _olmo2(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("attention_bias"), qk_norm="width")


def _olmo3(config: ModelConfig) -> AttentionSpec:
    kind, window = layer_type_of(config, all_but_every(config, 4)), layer_window(config, all_but_every(config, 4))
    spec = decoder(
        config, bias=config.flag("attention_bias"), window=window, qk_norm="width", layer_type=kind, base=500000.0
    )
    return spec if window is None else without_old_scaling(config, spec)


def _phi(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=True, qk_norm="head" if config.flag("qk_layernorm") else None)


def _stablelm(config: ModelConfig) -> AttentionSpec:
    return decoder(config, bias=config.flag("use_qkv_bias"), qk_norm="head" if config.flag("qk_layernorm") else None)


def _gpt_oss(config: ModelConfig) -> AttentionSpec:
    window = layer_window(config, all_but_every(config, 2))
    return decoder(config, bias=config.flag("attention_bias"), window=window, sinks=True, base=150000.0)


FAMILIES: Mapping[str, Family] = {
    "arcee": Family(_llama, sizes(32, 2560)),
    "gpt_neox": Family(_llama, sizes(64, 6144, attention_bias=True, partial_rotary_factor=0.25)),
    "gpt_oss": Family(
        _gpt_oss,
        sizes(
            64,
            2880,
            8,
            head_dim=64,
            sliding_window=128,
            attention_bias=True,
            rope_parameters={
                "rope_type": "yarn",
                "factor": 32.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        ),
    ),
    "granite": Family(_granite, sizes(32, 4096)),
    "llama": Family(_llama, sizes(32, 4096)),
    "ministral": Family(_ministral, sizes(32, 4096, 8, sliding_window=4096)),
    "mistral": Family(_mistral, sizes(32, 4096, 8, sliding_window=4096)),
    "mixtral": Family(_mixtral, sizes(32, 4096, 8)),
    "nemotron": Family(_llama, sizes(48, 6144, head_dim=128, partial_rotary_factor=0.5)),
    "olmo": Family(_olmo, sizes(32, 4096)),
    "olmo2": Family(_olmo2, sizes(32, 4096)),
    "olmo3": Family(_olmo3, sizes(32, 4096, sliding_window=4096)),
    "persimmon": Family(_phi, sizes(64, 4096, qk_layernorm=True, partial_rotary_factor=0.5)),
    "phi": Family(_phi, sizes(32, 2048, partial_rotary_factor=0.5)),
    "phi3": Family(_mistral, sizes(32, 3072)),
    "qwen2": Family(_qwen2, sizes(32, 4096, 32, sliding_window=4096, max_window_layers=28)),
    "qwen2_moe": Family(_qwen2_moe, sizes(16, 2048, 16, qkv_bias=True, sliding_window=4096, max_window_layers=28)),
    "qwen3": Family(_qwen3, sizes(32, 4096, 32, head_dim=128, sliding_window=4096, max_window_layers=28)),
    "qwen3_moe": Family(_qwen3_moe, sizes(32, 2048, 4, sliding_window=4096)),
    "smollm3": Family(_smollm3, sizes(16, 2048, 4)),
    "stablelm": Family(_stablelm, sizes(32, 2560, 32, partial_rotary_factor=0.25)),
    "starcoder2": Family(_starcoder2, sizes(24, 3072, 2, use_bias=True)),
}
