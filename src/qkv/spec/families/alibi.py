"""Families with alibi: distance takes from the score, at a slope per head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qkv.positions import Alibi, alibi_slopes
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.family import Family, sizes
from qkv.spec.families.layer import causal, decoder, head_dim_of, spec_of


def _bloom(config: ModelConfig) -> AttentionSpec:
    return spec_of(config, mask=causal(), alibi=Alibi(), projection_bias=True)


def _mpt(config: ModelConfig) -> AttentionSpec:
    inside = ModelConfig(config.inner("attn_config"), _MPT_ATTENTION, config.layer, f"{config.where}: attn_config")
    inside.refuse("clip_qkv", "query, key and value are clipped there")
    steepest = inside.number("alibi_bias_max") or 8.0
    slopes = (
        None if steepest == 8 else tuple(s ** (steepest / 8) for s in alibi_slopes(config.need("num_attention_heads")))
    )
    return spec_of(
        config,
        mask=causal(),
        scale=inside.number("softmax_scale"),
        alibi=Alibi(slopes) if inside.flag("alibi") else None,
        qk_norm="width" if inside.flag("qk_ln") else None,
        projection_bias=not config.flag("no_bias"),
    ).but(dropout_p=inside.number("attn_pdrop") or 0.0)


_MPT_ATTENTION: Mapping[str, Any] = {"alibi": True, "alibi_bias_max": 8}


def _falcon(config: ModelConfig) -> AttentionSpec:
    kv_heads = config.whole("num_key_value_heads")
    if not config.flag("new_decoder_architecture"):
        kv_heads = 1 if config.flag("multi_query") else None
    if not config.flag("alibi"):
        return decoder(config, bias=config.flag("bias"), num_kv_heads=kv_heads)
    # Falcon adds alibi before the scores are scaled, so the slopes are scaled with them.
    slopes = tuple(slope * head_dim_of(config) ** -0.5 for slope in alibi_slopes(config.need("num_attention_heads")))
    return spec_of(
        config, mask=causal(), alibi=Alibi(slopes), num_kv_heads=kv_heads, projection_bias=config.flag("bias")
    )


FAMILIES: Mapping[str, Family] = {
    "bloom": Family(_bloom, sizes(8, 64)),
    "falcon": Family(_falcon, sizes(71, 4544, multi_query=True)),
    "mpt": Family(_mpt, sizes(16, 2048, no_bias=True)),
}
