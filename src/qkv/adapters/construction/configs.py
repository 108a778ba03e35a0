"""Config objects: they answer to every name that the field uses, all in agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qkv.adapters.construction.request import Request
from qkv.adapters.construction.rules import LEFT_OUT, RULES, Asked
from qkv.adapters.construction.sizes import Sizes
from qkv.adapters.messages import Argument, Config
from qkv.adapters.names import ROLES

_OPEN_IN_CONFIG = ("window", "softcap", "scale")
"""Roles that a config object answers with None where the spec names nothing."""

_FITTED_TO_SIZES = ("scale",)
"""Those of which a class's own default goes with its own sizes, and not with those chosen here."""

_NEVER_IN_CONFIG = ("temperature",)
"""Roles that mean something else in a model's config: the temperature of sampling."""

_NEEDLESSLY_LARGE: Mapping[str, Any] = {
    "vocab_size": 65,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
}
"""Sizes of what stands around an attention: kept small."""

_PLAIN: Mapping[str, Any] = {
    "attn_implementation": "eager",
    "_attn_implementation": "eager",
    "flash": False,
    "use_flash": False,
    "use_flash_attention": False,
    "flash_attention": False,
    "use_cache": False,
}
"""Switches between ways of computing the same: the plain way."""

_OTHER_FIELDS: Mapping[str, Any] = {
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "rope_scaling": None,
    "position_embedding_type": "absolute",
    "clip_qkv": None,
    "pretraining_tp": 1,
    "pad_token_id": 0,
}
"""What else attentions read from a config object, where its class has no default."""


def config_of(request: Request, sizes: Sizes, argument: Argument, given: Any, implied: dict[str, Any]) -> Any:
    """The config object: it answers to every name of every role, all in agreement."""
    if given is not None and not isinstance(given, Mapping):
        return given
    values, fallbacks = {**_NEEDLESSLY_LARGE, **_PLAIN}, dict(_OTHER_FIELDS)
    for role, rule in RULES.items():
        may_be_none = role in _OPEN_IN_CONFIG
        for name in () if role in _NEVER_IN_CONFIG else ROLES.get(role, ()):
            asked = Asked(request, sizes, Argument(name, required=not may_be_none), implied, in_config=True)
            value = rule(asked)
            if value is not LEFT_OUT:
                values[name] = value
            elif may_be_none:
                (values if asked.says(role) or role in _FITTED_TO_SIZES else fallbacks)[name] = None
    return Config(values | dict(given or {}), argument.annotation, fallbacks)


def config_in_words(config: Config) -> str:
    """The sizes that it answers with, for the report."""
    values = config.values
    shown = ("n_embd", "n_head", "num_kv_heads", "block_size", "dropout", "bias")
    numbers = ", ".join(f"{name}={values[name]!r}" for name in shown if name in values)
    return f"a config object with {numbers}, and the same under every other name that the field uses"
