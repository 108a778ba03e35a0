"""Names in a state, taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qkv.adapters.names import norm_role, projection_role

LEAVES = {
    "weight": ("weight", "w", "kernel", "scale", "gamma", "gain", "g"),
    "bias": ("bias", "b", "shift", "beta"),
}
"""Spellings of the two arrays that a layer has."""


@dataclass(frozen=True)
class ArrayPath:
    """A name in the state, taken apart.

    Attributes:
        name: the whole.
        scope: the names of the modules around what it belongs to.
        stem: the name of what it belongs to: of the layer, or its own where it is a parameter by itself.
        index: the number after that name, as lists give.
        leaf: ``weight`` or ``bias`` of a layer; empty for a parameter by itself.
    """

    name: str
    scope: tuple[str, ...]
    stem: str
    index: int | None
    leaf: str

    @classmethod
    def of(cls, name: str) -> ArrayPath:
        """The name taken apart."""
        parts = name.split(".")
        leaf = next((leaf for leaf, spellings in LEAVES.items() if parts[-1].lower() in spellings), "")
        around = without_index(parts[:-1])
        # A layer's weight is called that; other spellings count where the layer's name says what it is.
        known = around and (projection_role(around[-1]) or norm_role(around[-1]))
        is_layer = bool(leaf and around and (parts[-1] in LEAVES or known))
        rest = parts[:-1] if is_layer else parts
        named = without_index(rest)
        index = int(rest[-1]) if len(named) < len(rest) else None
        return cls(name, tuple(named[:-1]), named[-1], index, leaf if is_layer else "")


def without_index(parts: list[str]) -> list[str]:
    """The names without the number at their end, as lists give."""
    return parts[:-1] if len(parts) > 1 and parts[-1].isdigit() else parts


def bias_of(path: ArrayPath, arrays: Iterable[str]) -> str | None:
    """The bias of the layer that a weight belongs to."""
    before = path.name.rpartition(".")[0]
    spelled = [f"{before}.{leaf}" for leaf in LEAVES["bias"]] if path.leaf else []
    return next((name for name in spelled if name in arrays), None)
