"""The sizes that are known of a candidate: from the spec, from what it was built with, from what it carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.adapters.messages import Facts
from qkv.adapters.names import SIZES_OF_HEADS, bare, role_of
from qkv.adapters.projections.pieces import ProjectionReading
from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Known:
    """The sizes that are known of the candidate; an empty set means any."""

    embed: frozenset[int]
    heads: frozenset[int]
    head_dim: frozenset[int]
    spec: AttentionSpec

    @classmethod
    def of(cls, facts: Facts, spec: AttentionSpec, at: tuple[str, ...], num_heads: int | None = None) -> Known:
        """The spec's sizes; where it leaves them open, those that the attention or what is around it carries.

        Args:
            facts: what the candidate says of itself.
            spec: what it's meant to do.
            at: the names of the modules around the attention.
            num_heads: the heads that it was built with; the spec's count where it names more than one.
        """
        if num_heads and spec.num_heads == 1:
            spec = spec.but(num_heads=num_heads)
        told: dict[str, set[int]] = {}
        inside = "".join(f"{name}." for name in at)
        beside = [name.removeprefix(inside) for name in facts.attributes]
        for name, value in facts.attributes.items():
            own = name.removeprefix(inside)
            # ``self.k`` is the size of a token in some code, of a head in other code.
            role = None if bare(own) in SIZES_OF_HEADS else role_of(own, beside)
            if role and isinstance(value, int) and not isinstance(value, bool):
                told.setdefault(role, set()).add(value)
        stated = {"embed_dim": spec.embed_dim, "head_dim": spec.head_dim}
        stated["num_heads"] = spec.num_heads if spec.num_heads > 1 else None
        sizes = {role: {size} if size else told.get(role, set()) for role, size in stated.items()}
        heads = sizes["num_heads"] | ({spec.kv_heads} if spec.num_heads > 1 else told.get("num_kv_heads", set()))
        return cls(frozenset(sizes["embed_dim"]), frozenset(heads), frozenset(sizes["head_dim"]), spec)

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.spec.num_heads if self.spec.num_heads > 1 else max(self.heads, default=1)

    def fits(self, axes: str, shape: Sequence[int]) -> bool:
        """Whether each axis can have the size it has."""
        known = {"e": self.embed, "h": self.heads, "d": self.head_dim, "c": frozenset({3}), "1": frozenset({1})}
        return all(size in known[letter] for letter, size in zip(axes, shape, strict=True) if known.get(letter))

    def grouped(self, width: int) -> list[int]:
        """The widths that a value of this width can have, once its heads are repeated for the queries'."""
        return [width // kv * self.num_heads for kv in self.heads if not width % kv]


# --- heads that no known name counts ----------------------------------------------------------------------------------

_LEAVES = ("Linear", "Conv1D", "Conv1d", "Conv2d", "Norm", "Dropout", "Embedding", "Softmax", "Identity", "Flatten")
"""Endings of classes whose numbers are a layer's own, never a number of heads."""


def possible_heads(
    facts: Facts, width: ProjectionReading | int, values: Mapping[str, Any] | None = None
) -> list[tuple[str, int]]:
    """What may be the number of heads where no known name says it, the likeliest first, each number once.

    These are the numbers that the class was built with or carries under a name of no known role, and that divide the
    query's width: ``self.parts = 4``. A known size of one head counts them too; it comes first: ``("32 / d_k", 4)``.

    Args:
        facts: what the candidate says of itself.
        width: channels of all heads' query, or the reading that tells them.
        values: what the class was built with, by the names of its constructor's arguments.
    """
    channels = width if isinstance(width, int) else width.widths[0]
    numbers = [*_numbers(facts, values or {})]
    found = [
        (f"{channels} / {name}", channels // number)
        for name, number in numbers
        if role_of(_leaf(name)) == "head_dim" and number > 0
    ]
    found += [(name, number) for name, number in numbers if role_of(_leaf(name)) is None]
    kept: dict[int, str] = {}
    for name, number in found:
        if 1 < number < channels and not channels % number:
            kept.setdefault(number, name)
    return [(name, number) for number, name in kept.items()]


def _numbers(facts: Facts, values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every whole number that the class was built with or carries, the nearest first."""
    carried = [(name, value) for name, value in facts.attributes.items() if _is_own(name, facts)]
    defaults = [(argument.name, argument.default) for argument in facts.init if argument.name not in values]
    for name, value in [*values.items(), *sorted(carried, key=lambda pair: pair[0].count(".")), *defaults]:
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def _is_own(name: str, facts: Facts) -> bool:
    """Whether an attribute belongs to the candidate or to a part that it wrote, rather than to a plain layer."""
    return not facts.submodules.get(name.rpartition(".")[0], "").endswith(_LEAVES)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
