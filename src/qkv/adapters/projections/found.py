"""Every array of a candidate, sorted by what its name says that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qkv.adapters.messages import ArrayFacts
from qkv.adapters.names import LISTS, LOOSE_OUTPUTS, SINKS, bare, bias_role, norm_role, projection_role
from qkv.adapters.projections.paths import LEAVES, ArrayPath, bias_of


@dataclass(frozen=True)
class Unit:
    """One weight with a role.

    Attributes:
        role: ``q``, ``k``, ``v``, ``out``, letters in the order of a fused array, ``loose``: perhaps the output's, or
            empty where its name says nothing.
        weight: its name.
        facts: its shape and owner; the shape is that of the part that was named.
        bias: name of its bias.
        scope: the names of the modules around it.
        place: where it stands in a list of heads.
        raw: whether it's a parameter of its own rather than a layer's weight.
        cut: the part of it that the user named.
        bias_cut: the part of its bias that goes with it.
        turned: whether the user says that it's stored (in, out).
        stem: the name of the layer it belongs to, or its own, with its place in a list of layers.
    """

    role: str
    weight: str
    facts: ArrayFacts
    bias: str | None = None
    scope: tuple[str, ...] = ()
    place: int | None = None
    raw: bool = False
    cut: tuple[slice, ...] = ()
    bias_cut: tuple[slice, ...] = ()
    turned: bool = False
    stem: str = ""


QKVO = ("q", "k", "v", "out")
LAYER_LISTS = ("layers", "blocks", "layer", "block", "encoder", "decoder", "h", "transformer", "encoders", "decoders")
"""Lists whose items are layers of a model, not heads of an attention."""


@dataclass
class Found:
    """Every array, sorted by what its name says.

    Attributes:
        units: the weights that are projections.
        others: matrices whose names say nothing.
        biases: biases that are parameters of their own, by scope and role.
        norms: the arrays of normalisations, by scope and role.
        sinks: the sinks' scores, by scope.
        arrays: all of them.
    """

    units: list[Unit] = field(default_factory=list)
    others: list[Unit] = field(default_factory=list)
    biases: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict)
    norms: dict[tuple[tuple[str, ...], str], dict[str, str]] = field(default_factory=dict)
    sinks: dict[tuple[str, ...], str] = field(default_factory=dict)
    arrays: Mapping[str, ArrayFacts] = field(default_factory=dict)

    @classmethod
    def among(cls, arrays: Mapping[str, ArrayFacts], norms: Mapping[str, str] = MappingProxyType({})) -> Found:
        """The arrays whose names say what they are, and those of modules that are known to be norms, by their role."""
        found = cls(arrays=arrays)
        for name, one in arrays.items():
            module, _, own = name.rpartition(".")
            if module in norms:
                leaf = "bias" if own.lower() in LEAVES["bias"] else "weight"
                found.norms.setdefault((tuple(module.split(".")[:-1]), norms[module]), {})[leaf] = name
            else:
                found._sort_in(ArrayPath.of(name), one)
        return found

    def _sort_in(self, path: ArrayPath, one: ArrayFacts) -> None:
        role = norm_role(path.stem)
        if role:
            self.norms.setdefault((path.scope, role), {})[path.leaf or "weight"] = path.name
        elif bare(path.stem) in SINKS:
            self.sinks[path.scope] = path.name
        elif not path.leaf and bias_role(path.stem):
            self.biases[path.scope, str(bias_role(path.stem))] = path.name
        elif path.leaf != "bias" and len(one.shape) > 1:
            self._take(path, one)

    def _take(self, path: ArrayPath, one: ArrayFacts) -> None:
        index, scope = path.index, path.scope
        listed = index is not None and bare(path.stem) in LISTS and index < 4
        role = QKVO[index] if listed and index is not None else projection_role(path.stem)
        if role is None and bare(path.stem) in LOOSE_OUTPUTS:
            role = "loose"
        place = None if listed or role in ("out", "loose", None) else index
        if place is None and len(scope) > 1 and scope[-1].isdigit() and scope[-2].lower() not in LAYER_LISTS:
            place, scope = int(scope[-1]), scope[:-2]
        stem = path.stem if index is None or place == index else f"{path.stem}.{index}"
        bias = bias_of(path, self.arrays)
        unit = Unit(role or "", path.name, one, bias, scope, place, raw=not path.leaf, stem=stem)
        (self.units if role else self.others).append(unit)

    def in_order(self) -> list[Unit]:
        """The projections and the matrices whose names say nothing, in the order of the state."""
        order = {name: place for place, name in enumerate(self.arrays)}
        return sorted([*self.units, *self.others], key=lambda unit: order[unit.weight])

    def biases_at(self, scope: tuple[str, ...]) -> dict[str, str]:
        """The biases of one scope that are parameters of their own, by role."""
        return {role: name for (at, role), name in self.biases.items() if at == scope}
