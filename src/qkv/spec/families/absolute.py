"""Families whose positions are added to the tokens, outside the attention."""

from __future__ import annotations

from collections.abc import Mapping

from qkv.errors import SpecError
from qkv.masks import Everything
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.family import Family, sizes
from qkv.spec.families.layer import causal, head_dim_of, spec_of, unusual


def _gpt2(config: ModelConfig) -> AttentionSpec:
    scale = head_dim_of(config) ** -0.5 if config.flag("scale_attn_weights") else 1.0
    if config.flag("scale_attn_by_inverse_layer_idx"):
        scale /= config.layer + 1
    return spec_of(config, mask=causal(), projection_bias=True, scale=unusual(config, scale))


def _gpt_bigcode(config: ModelConfig) -> AttentionSpec:
    kv_heads = 1 if config.flag("multi_query") else None
    scale = None if config.flag("scale_attn_weights") else 1.0
    return spec_of(config, mask=causal(), num_kv_heads=kv_heads, projection_bias=True, scale=scale)


def _gpt_neo(config: ModelConfig) -> AttentionSpec:
    kind = config.of_layer("attention_layers")
    if kind is None:
        try:
            kinds = [kind for group, times in config.get("attention_types") for _ in range(times) for kind in group]
            kind = kinds[config.layer]
        except (TypeError, ValueError, IndexError):
            raise SpecError(
                f"attention_types is {config.get('attention_types')!r}, and must name the kind of layer {config.layer} "
                'as [[["global", "local"], 12]] does, 12 times two layers'
            ) from None
    window = config.whole("window_size") if kind == "local" else None
    return spec_of(config, mask=causal(window), scale=1.0)


def _opt(config: ModelConfig) -> AttentionSpec:
    return spec_of(config, mask=causal(), projection_bias=config.flag("enable_bias"))


def _bert(config: ModelConfig) -> AttentionSpec:
    if config.get("position_embedding_type") != "absolute":
        config.refuse("position_embedding_type", "the scores then depend on query and distance together")
    mask = causal() if config.flag("is_decoder") else Everything()
    return spec_of(config, mask=mask, projection_bias=True)


def _vit(config: ModelConfig) -> AttentionSpec:
    return spec_of(config, mask=Everything(), projection_bias=config.flag("qkv_bias"))


_BERT = sizes(12, 768, attention_dropout=0.1, position_embedding_type="absolute")

FAMILIES: Mapping[str, Family] = {
    "bert": Family(_bert, _BERT),
    "camembert": Family(_bert, _BERT),
    "distilbert": Family(_bert, _BERT),
    "electra": Family(_bert, {**_BERT, "num_attention_heads": 4, "hidden_size": 256}),
    "gpt2": Family(_gpt2, sizes(12, 768, attention_dropout=0.1, scale_attn_weights=True)),
    "gpt_bigcode": Family(
        _gpt_bigcode, sizes(12, 768, attention_dropout=0.1, scale_attn_weights=True, multi_query=True)
    ),
    "gpt_neo": Family(_gpt_neo, sizes(16, 2048, window_size=256, attention_types=[[["global", "local"], 12]])),
    "opt": Family(_opt, sizes(12, 768, enable_bias=True)),
    "roberta": Family(_bert, _BERT),
    "vit": Family(_vit, sizes(12, 768, qkv_bias=True)),
    "xlm-roberta": Family(_bert, _BERT),
}
