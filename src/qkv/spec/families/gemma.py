"""Gemma: a scale of its own, a softcap, windows in most layers."""

from __future__ import annotations

from collections.abc import Mapping

from qkv.errors import SpecError
from qkv.masks import Everything, Mask, SlidingWindow
from qkv.positions import Rope
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.family import Family, sizes
from qkv.spec.families.layer import (
    all_but_every,
    causal,
    decoder,
    layer_type_of,
    layer_window,
    unusual,
    without_old_scaling,
)


def _gemma(config: ModelConfig) -> AttentionSpec:
    config.refuse("use_bidirectional_attention", "how this family then masks is left to the caller")
    return decoder(config, bias=config.flag("attention_bias"))


def _gemma_scale(config: ModelConfig) -> float | None:
    scalar = config.number("query_pre_attn_scalar")
    if scalar is None or scalar <= 0:
        raise SpecError(f"query_pre_attn_scalar is {scalar}, and must be above 0: the scores are divided by its root")
    return unusual(config, scalar**-0.5)


def _gemma2(config: ModelConfig) -> AttentionSpec:
    config.refuse("use_bidirectional_attention", "how this family then masks is left to the caller")
    return decoder(
        config,
        bias=config.flag("attention_bias"),
        window=layer_window(config, all_but_every(config, 2)),
        scale=_gemma_scale(config),
        softcap=config.number("attn_logit_softcapping"),
    )


def _gemma3(config: ModelConfig) -> AttentionSpec:
    kind, window = layer_type_of(config, all_but_every(config, 6)), layer_window(config, all_but_every(config, 6))
    spec = decoder(
        config,
        bias=config.flag("attention_bias"),
        scale=_gemma_scale(config),
        mask=_gemma3_mask(config, window),
        softcap=config.number("attn_logit_softcapping"),
        qk_norm="head",
        layer_type=kind,
        base=1e6,
    )
    if window is None or spec.rope is None or config.inner("rope_parameters"):
        return spec
    local = config.number("rope_local_base_freq") or 10000.0
    return without_old_scaling(config, spec.but(rope=Rope(base=local, dims=spec.rope.dims)))


def _gemma3_mask(config: ModelConfig, window: int | None) -> Mask:
    if not config.flag("use_bidirectional_attention"):
        return causal(window)
    # The file's window then counts both sides together (EmbeddingGemma).
    return Everything() if window is None else SlidingWindow(window // 2 + 1)


_GEMMA = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}

FAMILIES: Mapping[str, Family] = {
    "gemma": Family(_gemma, sizes(16, 3072, 16, head_dim=256)),
    "gemma2": Family(_gemma2, sizes(8, 2304, 4, attn_logit_softcapping=50.0, **_GEMMA)),
    "gemma3_text": Family(_gemma3, sizes(8, 2304, 4, **_GEMMA)),
}
