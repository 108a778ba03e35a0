"""What the arguments of a constructor say of the attention: they are as good as attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from qkv.adapters.construction.request import Request
from qkv.adapters.construction.sizes import Sizes
from qkv.adapters.names import KV_HEADS_OR_GROUP_SIZE, bare


def told_by(request: Request, sizes: Sizes) -> dict[str, Any]:
    """What is settled by the arguments that the user gave, and by the sizes that were chosen, by role."""
    told: dict[str, Any] = {}
    for role, value in request.given_by_role().items():
        if role in _FLAGS and isinstance(value, bool):
            told[role] = value
        elif role in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            told |= _NUMBERS[role](value, sizes)
        elif role == "window" and isinstance(value, list | tuple) and len(value) == 2:
            told |= {"left_window": value[0], "right_window": value[1]}
    grouped = [name for name, role in request.takes().items() if role in ("num_kv_heads", "group_size")]
    if any(bare(name) not in KV_HEADS_OR_GROUP_SIZE for name in grouped):
        told["num_kv_heads"] = sizes.num_kv_heads
    return told


def _as(role: str) -> Callable[[Any, Sizes], dict[str, Any]]:
    return lambda value, sizes: {role: value}


_FLAGS = ("causal", "sinks", "alibi")
_NUMBERS: Mapping[str, Callable[[Any, Sizes], dict[str, Any]]] = {
    "window": _as("window"),
    "softcap": _as("softcap"),
    "scale": _as("scale"),
    "temperature": lambda value, sizes: {"scale": 1 / value},
    "query_pre_attn_scalar": _as("query_pre_attn_scalar"),
    "rope_base": _as("rope_base"),
    "rotary_dims": _as("rotary_dims"),
    "rotary_fraction": lambda value, sizes: {"rotary_dims": int(value * sizes.head_dim)} if value < 1 else {},
}
"""What a given number settles, by its role."""
