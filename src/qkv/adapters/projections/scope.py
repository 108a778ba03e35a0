"""The arrays of one attention, by role, and the axes that a layer's class leaves no choice about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qkv.adapters.projections.found import Unit
from qkv.adapters.projections.pieces import Piece

LINEARS = ("Linear", "Dense")
"""Endings of classes whose weight is (out, in)."""

_TORCH_NAMES = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
"""Parameters of torch's own attention, and of those that copy its names: (out, in)."""


@dataclass(frozen=True)
class Scope:
    """The arrays of one attention.

    Attributes:
        at: the names of the modules around it.
        units: the weights of each role; several are single heads.
        biases: biases that are parameters of their own, by role.
        note: what was assumed to tell the arrays apart, in words; empty where their names say it.
        sure: whether names say it.
    """

    at: tuple[str, ...]
    units: Mapping[str, tuple[Unit, ...]]
    biases: Mapping[str, str]
    note: str = ""
    sure: bool = True

    @property
    def fused(self) -> str | None:
        """The letters of the fused array; None where q, k and v are apart."""
        return next((role for role in self.units if len(role) > 1 and role != "out"), None)

    @property
    def names(self) -> frozenset[str]:
        """The weights that have a role."""
        return frozenset(unit.weight for units in self.units.values() for unit in units)

    def piece(self, role: str, axes: str) -> Piece:
        """The projection of that role, with these axes."""
        units = self.units[role]
        first = units[0]
        own = self.biases.get(role)
        biases = tuple(unit.bias for unit in units if unit.bias)
        return Piece(
            weights=tuple(unit.weight for unit in units),
            axes=axes,
            shape=tuple(first.facts.shape),
            biases=biases if len(biases) == len(units) else (own,) if own else (),
            cut=first.cut,
            bias_cut=first.bias_cut if biases else (),
            output=role == "out",
        )

    def size(self, role: str) -> tuple[int, int] | None:
        """Channels that come out and go in; None where the array's axes can be read in several ways."""
        axes = fixed_axes(self.units[role][0])
        return None if axes is None else self.piece(role, axes).size


def fixed_axes(unit: Unit) -> str | None:
    """The axes where the owner's class leaves no choice."""
    ndim, owner = len(unit.facts.shape), unit.facts.owner
    if unit.turned:
        return "eo"
    if unit.raw and unit.weight.rpartition(".")[2] in _TORCH_NAMES:
        return "oe"
    if owner == "Conv1D" and ndim == 2:
        return "eo"
    linear = ndim == 2 and owner.endswith(LINEARS) and unit.weight.endswith("weight")
    if linear or (not unit.raw and ndim > 2 and set(unit.facts.shape[2:]) == {1}):
        return "oe" + "1" * (ndim - 2)
    return None
