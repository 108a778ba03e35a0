"""Family: how the models of one ``model_type`` write their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families.config import ModelConfig


@dataclass(frozen=True)
class Family:
    """How a family's configuration is read.

    Attributes:
        read: from the configuration to the spec of one layer.
        defaults: values of the fields that a file leaves out.
    """

    read: Callable[[ModelConfig], AttentionSpec]
    defaults: Mapping[str, Any]


def sizes(heads: int, width: int, kv_heads: int | None = None, **more: Any) -> Mapping[str, Any]:
    """The defaults of a family: query heads, channels of a token, key/value heads, and whatever else it has."""
    return {"num_attention_heads": heads, "hidden_size": width, "num_key_value_heads": kv_heads, **more}
