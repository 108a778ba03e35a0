"""Axes: a number factored back into the names of the axes that it is made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qkv.shapes.product import Shape

LITERALS = (2, 3, 4, 6, 8)
"""Numbers that code writes out: q, k and v in one array, two halves, a layer four times as wide."""

LENGTHS = ("tokens", "query", "key", "context_length")
"""Axes that code makes one longer or shorter, or counts the distances of."""

MOST_TOGETHER = 3
"""Axes that are flattened into one: batch, heads and tokens."""


@dataclass(frozen=True)
class Axes:
    """The axes of a call by name, each of a size that the others don't have.

    Attributes:
        sizes: length of each, by name; of two with the same length the first is meant.
    """

    sizes: Mapping[str, int]

    def name(self, size: int) -> str:
        """What an axis of this size is: ``tokens``, ``heads*head_dim``, ``head_dim/2``; the number where it is none."""
        return self._known.get(size, str(size))

    def shape(self, sizes: Sequence[int]) -> Shape:
        """The shape of an array of these sizes."""
        return Shape(tuple(map(self.name, sizes)), tuple(sizes))

    def known(self, size: int) -> bool:
        """Whether an axis of this size has a name; one of 1 needs none."""
        return size in self._known or size in (0, 1, *LITERALS)

    @cached_property
    def equal(self) -> Mapping[str, str]:
        """The names that can't be told from another: ``{"head_dim": "heads"}`` where there are as many of both."""
        first: dict[int, str] = {}
        return {name: first[size] for name, size in self.sizes.items() if first.setdefault(size, name) != name}

    @cached_property
    def _known(self) -> Mapping[int, str]:
        """Every size that has a name, the plainest name for each."""
        known: dict[int, str] = {}
        for name, size in self._names():
            if size > 1 and size not in known:
                known[size] = name
        return known

    def _names(self) -> Iterator[tuple[str, int]]:
        """Names with their sizes, the plainest first: axes, several in one, parts and multiples, one more or fewer."""
        plain = [(name, size) for name, size in self.sizes.items() if size > 1]
        yield from plain
        several = [
            ("*".join(name for name, _ in group), math.prod(size for _, size in group))
            for count in range(2, MOST_TOGETHER + 1)
            for group in itertools.combinations(plain, count)
            if not {"batch", "embed_dim"} <= {name for name, _ in group}
        ]
        yield from several
        yield from self._fused()
        for name, size in (*plain, *several):
            yield from ((f"{name}/{number}", size // number) for number in (2, 4) if not size % number)
            yield from ((f"{number}*{name}", number * size) for number in LITERALS)
        for name, size in plain:
            if name in LENGTHS:
                yield from ((f"{name}{more:+d}", size + more) for more in (1, -1))
                yield f"2*{name}-1", 2 * size - 1

    def _fused(self) -> Iterator[tuple[str, int]]:
        """One projection for query, key and value where these have fewer heads; the channels that rope leaves alone."""
        heads, kv_heads, dim = (self.sizes.get(name, 0) for name in ("heads", "kv_heads", "head_dim"))
        if kv_heads and heads != kv_heads:
            yield "(heads+2*kv_heads)*head_dim", (heads + 2 * kv_heads) * dim
            yield "heads+2*kv_heads", heads + 2 * kv_heads
            yield "heads/kv_heads", heads // kv_heads
        if "rotary_dims" in self.sizes:
            yield "head_dim-rotary_dims", dim - self.sizes["rotary_dims"]
