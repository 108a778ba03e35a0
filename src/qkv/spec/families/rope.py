"""Rope as a model's configuration describes it, in the old fields (``rope_theta``) or the new ``rope_parameters``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from qkv.errors import SpecError
from qkv.positions import Rope, RopeScaling
from qkv.spec.families.config import ModelConfig
from qkv.spec.fields import scaling_from_mapping
from qkv.vocabulary import Pairing

_FIELDS_OF = {
    "linear": ("factor",),
    "llama3": ("factor", "original_length", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "original_length", "beta_fast", "beta_slow", "attention_factor", "truncate"),
}


def rope_of(
    config: ModelConfig,
    head_dim: int,
    pairing: Pairing = "halves",
    layer_type: str | None = None,
    base: float = 10000.0,
) -> Rope:
    """The rope of the layer.

    Args:
        config: the model's configuration.
        head_dim: channels of a head, of which the configuration names a share.
        pairing: which channels the family turns together; no configuration says it.
        layer_type: ``full_attention`` or ``sliding_attention`` where the two have a rope of their own.
        base: ``rope_theta`` where the configuration has none.
    """
    given = dict(config.inner("rope_scaling") or config.inner("rope_parameters"))
    if layer_type is not None and isinstance(given.get(layer_type), Mapping):
        given = dict(given[layer_type])
    theta = given.get("rope_theta", config.number("rope_theta"))
    share = given.get("partial_rotary_factor", config.number("partial_rotary_factor"))
    for name, value in (("rope_theta", theta), ("partial_rotary_factor", share)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SpecError(f"{config.where}: {name} is {value!r}, and must be a number")
    dims = int(head_dim * (1.0 if share is None else share))
    return Rope(
        pairing=pairing,
        base=float(base if theta is None else theta),
        dims=None if dims == head_dim else dims,
        scaling=_scaling(config, given),
    )


def _scaling(config: ModelConfig, given: Mapping[str, Any]) -> RopeScaling | None:
    kind = given.get("rope_type", given.get("type", "default"))
    # mrope gives text tokens three equal positions, which is the plain rope.
    if kind in ("default", "mrope"):
        return None
    if kind not in _FIELDS_OF:
        raise SpecError(
            f"{config.where}: rope scaling {kind!r} is not known; known: {', '.join(_FIELDS_OF)}. Take the scaling out "
            "of a copy of the config to judge the layer with the plain frequencies"
        )
    known = {"factor": _factor(config, given), "original_length": _original_length(config, given)}
    known |= {name: given[name] for name in _FIELDS_OF[kind] if given.get(name) is not None}
    if kind == "yarn" and "attention_factor" not in known and given.get("mscale") and given.get("mscale_all_dim"):
        known["attention_factor"] = _yarn_factor(known["factor"], given["mscale"], given["mscale_all_dim"])
    fields = {name: known[name] for name in _FIELDS_OF[kind] if known.get(name) is not None}
    return scaling_from_mapping({"kind": kind, **fields}, config.where)


def _original_length(config: ModelConfig, given: Mapping[str, Any]) -> Any:
    """Beside the scaling (Phi-3), in it, or else the model's own length."""
    beside = config.get("original_max_position_embeddings")
    inside = given.get("original_max_position_embeddings")
    return beside or inside or config.get("max_position_embeddings")


def _factor(config: ModelConfig, given: Mapping[str, Any]) -> Any:
    factor, length = given.get("factor"), config.whole("max_position_embeddings")
    if factor is None and length is not None:
        return length / _original_length(config, given)
    return factor


def _yarn_factor(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """DeepSeek's way to say the attention factor: a quotient of two."""
    stretch = 0.1 * math.log(max(factor, 1.0))
    return (mscale * stretch + 1.0) / (mscale_all_dim * stretch + 1.0)
