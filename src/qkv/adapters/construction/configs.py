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

_NEVER_IN_CONFIG = ("temperature",)
"""Roles that mean something else in a model's config: the temperature of sampling."""

_OTHER_FIELDS: Mapping[str, Any] = {
    "vocab_size": 65,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "attn_implementation": "eager",
    "_attn_implementation": "eager",
    "flash": False,
    "use_flash": False,
    "use_flash_attention": False,
    "flash_attention": False,
    "use_cache": False,
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
"""What else attentions read from a config object."""


def config_of(request: Request, sizes: Sizes, argument: Argument, given: Any, implied: dict[str, Any]) -> Any:
    """The config object: it answers to every name of every role, all in agreement."""
    if given is not None and not isinstance(given, Mapping):
        return given
    values = dict(_OTHER_FIELDS)
    for role, names in ROLES.items():
        if role in _NEVER_IN_CONFIG:
            continue
        for name in names:
            value = _config_value(request, sizes, role, name, implied)
            if value is not LEFT_OUT:
                values[name] = value
    return Config(values | dict(given or {}), argument.annotation)


def _config_value(request: Request, sizes: Sizes, role: str, name: str, implied: dict[str, Any]) -> Any:
    rule = RULES.get(role)
    if rule is None:
        return LEFT_OUT
    required = role not in _OPEN_IN_CONFIG
    value = rule(Asked(request, sizes, Argument(name, required=required), implied, in_config=True))
    return None if value is LEFT_OUT and not required else value


def config_in_words(config: Config) -> str:
    """The sizes that it answers with, for the report."""
    values = config.values
    shown = ("n_embd", "n_head", "num_kv_heads", "block_size", "dropout", "bias")
    numbers = ", ".join(f"{name}={values[name]!r}" for name in shown if name in values)
    return f"a config object with {numbers}, and the same under every other name that the field uses"
