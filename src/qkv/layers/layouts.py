"""Layouts: how other modules store the projections of an attention, and the way from there to here and back.

A layout is an entry in a table; what differs is what things are called, what lies in one array, and which way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qkv.errors import SpecError

OURS = ("q_proj", "k_proj", "v_proj")
"""The projections that may lie in one array, in the order in which they do."""

KEPT = ("q_norm.weight", "k_norm.weight", "sinks")
"""What has the same name everywhere."""


@dataclass(frozen=True)
class Sizes:
    """The sizes that tell where one projection ends in an array of several."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int

    @property
    def widths(self) -> tuple[int, int, int]:
        """Rows of the three projections."""
        heads = self.num_heads, self.num_kv_heads, self.num_kv_heads
        return heads[0] * self.head_dim, heads[1] * self.head_dim, heads[2] * self.value_dim


@dataclass(frozen=True)
class Layout:
    """How the projections are stored.

    Attributes:
        name: whose layout it is.
        weights: name of the array with all three weights, or the names of the three.
        biases: likewise for the biases.
        output: name of the output's projection, before `.weight` and `.bias`.
        by_group: whether an array of all goes group by group: the query heads that share a key head, then that key head
            and its value head. With as many of each, that is head by head.
        turned: whether weights are `(in, out)`, for `x @ weight`.
    """

    name: str
    weights: tuple[str, ...]
    biases: tuple[str, ...]
    output: tuple[str, str] = ("out_proj.weight", "out_proj.bias")
    by_group: bool = False
    turned: bool = False

    def fits(self, module: nn.Module) -> bool:
        """Whether a module stores its weights in this way."""
        known = dict(module.named_parameters())
        if not all(name in known for name in self.weights):
            return False
        owner = module.get_submodule(self.weights[0].rpartition(".")[0])
        return owner is module or self.turned != isinstance(owner, nn.Linear)

    def read(self, theirs: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
        """Their arrays as a state dict of `Attention`.

        Raises:
            SpecError: there is something among them that no option stands for.
        """
        known = {*self.weights, *self.biases, *self.output, *KEPT}
        if more := sorted(set(theirs) - known):
            raise SpecError(f"the module also learns {', '.join(more)}, and Attention has nothing of the kind")
        ours = {name: theirs[name] for name in KEPT if name in theirs}
        for kind, names in (("weight", self.weights), ("bias", self.biases)):
            parts = [self._upright(theirs[name]) for name in names if name in theirs]
            parts = self._parted(parts[0], sizes) if len(parts) == len(names) == 1 else parts
            ours |= {f"{name}.{kind}": part for name, part in zip(OURS, parts, strict=False)}
        for kind, name in zip(("weight", "bias"), self.output, strict=True):
            if name in theirs:
                ours[f"out_proj.{kind}"] = self._upright(theirs[name])
        return ours

    def write(self, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
        """A state dict of `Attention` as arrays with their names and shapes; a bias that there isn't is zero.

        Args:
            ours: the state dict.
            theirs: the arrays that are to be filled.
            sizes: the sizes of the layer.

        Raises:
            SpecError: the layer has an array that there is no place for, or none for a place that there is.
        """
        written = {name: ours[name] for name in KEPT if name in ours}
        for kind, names in (("weight", self.weights), ("bias", self.biases)):
            if f"q_proj.{kind}" in ours:
                parts = [ours[f"{name}.{kind}"] for name in OURS]
                parts = [self._joined(parts, sizes)] if len(names) == 1 else parts
                written |= {name: self._upright(part) for name, part in zip(names, parts, strict=True)}
        for kind, name in zip(("weight", "bias"), self.output, strict=True):
            if f"out_proj.{kind}" in ours:
                written[name] = self._upright(ours[f"out_proj.{kind}"])
        biases = {*self.biases, self.output[1]}
        written |= {name: torch.zeros_like(theirs[name]) for name in (biases & set(theirs)) - set(written)}
        if alone := sorted(set(written) ^ set(theirs)):
            raise SpecError(
                f"{', '.join(alone)}: only one of the layer and the module has it, in the layout of {self.name}.\n"
                "Build the one to be filled with the options of the other."
            )
        return written

    def _upright(self, array: Tensor) -> Tensor:
        return array.mT if self.turned and array.ndim == 2 else array

    def _parted(self, array: Tensor, sizes: Sizes) -> list[Tensor]:
        """The three in one array, ``(out, in)`` or ``(out,)``."""
        if not self.by_group:
            return list(array.split(sizes.widths))
        parts = array.unflatten(0, (sizes.num_kv_heads, -1)).split(self._group(sizes), dim=1)
        return [part.flatten(0, 1) for part in parts]

    def _joined(self, parts: list[Tensor], sizes: Sizes) -> Tensor:
        if not self.by_group:
            return torch.cat(parts)
        return torch.cat([part.unflatten(0, (sizes.num_kv_heads, -1)) for part in parts], dim=1).flatten(0, 1)

    @staticmethod
    def _group(sizes: Sizes) -> list[int]:
        return [width // sizes.num_kv_heads for width in sizes.widths]


def _of_modules(
    name: str, projections: Sequence[str], output: str, *, by_group: bool = False, turned: bool = False
) -> Layout:
    """The layout of projections that are modules of their own, with a weight and a bias."""
    weights, biases = (tuple(f"{one}.{kind}" for one in projections) for kind in ("weight", "bias"))
    return Layout(name, weights, biases, (f"{output}.weight", f"{output}.bias"), by_group, turned)


_ARTICLES = ("W_query", "W_key", "W_value")

LAYOUTS: tuple[Layout, ...] = (
    Layout("torch", ("in_proj_weight",), ("in_proj_bias",)),
    Layout("torch with kdim", tuple(f"{name}_weight" for name in OURS), ("in_proj_bias",)),
    _of_modules("llama", OURS, "o_proj"),
    _of_modules("these layers", OURS, "out_proj"),
    _of_modules("gpt2", ["c_attn"], "c_proj", turned=True),
    _of_modules("nanoGPT", ["c_attn"], "c_proj"),
    _of_modules("gpt_neox", ["query_key_value"], "dense", by_group=True),
    _of_modules("phi3", ["qkv_proj"], "o_proj"),
    _of_modules("the article", _ARTICLES, "out_proj"),
    Layout("the article's matrices", _ARTICLES, (), turned=True),
)
"""Every layout. A module has the first one that fits."""


def layout_of(module: nn.Module) -> Layout:
    """How a module stores its projections.

    Raises:
        SpecError: in no way that is known.
    """
    fitting = [layout for layout in LAYOUTS if layout.fits(module)]
    if not fitting:
        names = ", ".join(name for name, _ in module.named_parameters()) or "none at all"
        raise SpecError(
            f"{type(module).__name__} stores its projections in no known way; its parameters: {names}.\n"
            "Hand over the attention itself rather than the block around it, for instance "
            "model.model.layers[0].self_attn."
        )
    output = [layout for layout in fitting if layout.output[0] in dict(module.named_parameters())]
    return (output or fitting)[0]
