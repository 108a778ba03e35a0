"""What many families of models share when they describe one layer: sizes, windows by layer, llama's manner."""

from __future__ import annotations

from typing import Any

from qkv.errors import SpecError
from qkv.masks import Causal, Mask, SlidingWindow
from qkv.positions import Rope
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig
from qkv.spec.families.rope import rope_of
from qkv.vocabulary import Pairing


def spec_of(config: ModelConfig, **fields: Any) -> AttentionSpec:
    """The spec with the sizes that all families name alike, and ``fields``."""
    heads = config.need("num_attention_heads")
    kv_heads = fields.pop("num_kv_heads", config.whole("num_key_value_heads"))
    return AttentionSpec(
        num_heads=heads,
        num_kv_heads=None if kv_heads == heads else kv_heads,
        head_dim=head_dim_of(config),
        embed_dim=config.need("hidden_size"),
        dropout_p=config.number("attention_dropout") or 0.0,
        **fields,
    )


def head_dim_of(config: ModelConfig) -> int:
    """Channels of a head: as the file says, else an equal share of the token's."""
    heads, width = config.need("num_attention_heads"), config.need("hidden_size")
    if config.whole("head_dim") is not None:
        return config.need("head_dim")
    if width % heads:
        raise SpecError(
            f"hidden_size {width} is no multiple of num_attention_heads {heads}, and head_dim is not given; give it"
        )
    return width // heads


def causal(window: int | None = None) -> Mask:
    """The causal mask, within a window where there is one."""
    return Causal() if window is None else Causal() & SlidingWindow(window)


def decoder(
    config: ModelConfig,
    *,
    bias: bool,
    window: int | None = None,
    pairing: Pairing = "halves",
    rope: bool = True,
    base: float = 10000.0,
    layer_type: str | None = None,
    **fields: Any,
) -> AttentionSpec:
    """A causal decoder in llama's manner: rope, grouped heads, perhaps a window."""
    turned: Rope | None = rope_of(config, head_dim_of(config), pairing, layer_type, base) if rope else None
    fields.setdefault("mask", causal(window))
    return spec_of(config, rope=turned, projection_bias=bias, **fields)


def layer_type_of(config: ModelConfig, slides: bool) -> str:
    """The layer's own entry of ``layer_types``; where there are none, sliding if the family's rule says so."""
    return str(config.of_layer("layer_types") or ("sliding_attention" if slides else "full_attention"))


def layer_window(config: ModelConfig, slides: bool) -> int | None:
    """The layer's window; None where it has none."""
    return config.whole("sliding_window") if layer_type_of(config, slides) == "sliding_attention" else None


def all_but_every(config: ModelConfig, period: int) -> bool:
    """Whether the layer slides in a family where all layers do but every ``period``-th."""
    return (config.layer + 1) % (config.whole("sliding_window_pattern") or period) != 0


def unusual(config: ModelConfig, scale: float) -> float | None:
    """The scale, or None where it is the usual ``1/sqrt(head_dim)``."""
    return None if scale == head_dim_of(config) ** -0.5 else scale


def without_old_scaling(config: ModelConfig, spec: AttentionSpec) -> AttentionSpec:
    """The spec with plain frequencies, if the scaling is written the old way, which is meant for full layers only."""
    if config.inner("rope_parameters") or spec.rope is None:
        return spec
    return spec.but(rope=Rope(spec.rope.pairing, spec.rope.base, spec.rope.dims))
