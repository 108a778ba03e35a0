"""Classes whose width is fixed outside of their constructor, as by a constant of their file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qkv.adapters.construction.construction import Construction
from qkv.adapters.construction.sizes import Sizes, fewer
from qkv.adapters.messages import Facts
from qkv.adapters.projections import channels_in

MOST_HEADS = 6
"""Heads that a class is built with by default."""


def fitted_to(construction: Construction, built: Facts) -> Construction | None:
    """Arguments whose heads together fill the width that the built arrays show; None where there is nothing to change.

    For a class such as ``MultiHeadAttention(num_heads, head_size)`` whose layers are as wide as a constant of its file.

    Args:
        construction: what the class was built with, and could not be called.
        built: what came of it.
    """
    widths = channels_in(built)
    width = widths.get("out") or widths.get("q")
    names = {role: name for name, role in construction.roles.items() if name in construction.kwargs}
    if width is None or "num_heads" not in names:
        return None
    free = {role for role, name in names.items() if name not in construction.given}
    sizes = _filling(width, construction.sizes, free, names)
    if sizes is None or sizes == construction.sizes:
        return None
    values: Mapping[str, Any] = {**vars(sizes), "group_size": sizes.group_size}
    changed = {names[role]: values[role] for role in _FITTED if role in free}
    if all(construction.kwargs[name] == value for name, value in changed.items()):
        return None
    shown = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    words = f"built with {shown}, so that the heads fill the {width} channels that its layers are made for"
    return replace(
        construction,
        kwargs={**construction.kwargs, **changed},
        assumptions=[*construction.assumptions[1:], words],
        sizes=sizes,
        implied={**construction.implied, **({"num_kv_heads": sizes.num_kv_heads} if "num_kv_heads" in names else {})},
    )


_FITTED = ("num_heads", "head_dim", "value_dim", "num_kv_heads", "group_size")


def _filling(width: int, sizes: Sizes, free: set[str], names: Mapping[str, str]) -> Sizes | None:
    """The sizes with heads of one size that fill the width; None where what the user gave doesn't allow it."""
    if "num_heads" not in free:
        counts = [sizes.num_heads]
    elif "head_dim" in names and "head_dim" not in free:
        counts = [width // sizes.head_dim]
    else:
        counts = sorted(range(2, width), key=lambda count: (count > MOST_HEADS, abs(count - MOST_HEADS)))
    even = [count for count in counts if count and not width % count]
    # Heads of an even size can be turned by rope; one of another size than their number can't be taken for it.
    best = sorted(even, key=lambda count: width // count % 2 == 1 or width // count == count)
    if not best or ("head_dim" in names and "head_dim" not in free and best[0] * sizes.head_dim != width):
        return None
    heads, head_dim = best[0], width // best[0]
    kv_heads = fewer(heads) if free & {"num_kv_heads", "group_size"} else heads
    value_dim = head_dim if "value_dim" in free or "value_dim" not in names else sizes.value_dim
    return replace(sizes, num_heads=heads, head_dim=head_dim, num_kv_heads=kv_heads, value_dim=value_dim)
