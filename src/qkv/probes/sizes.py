"""Sizes: a designed set of shapes and strides, in which a fault of a last block or of one size has to show.

They are no entries of ``PROBES``: a sweep runs them where everything else is right, see ``size_sweep.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.masks import Everything
from qkv.probes.covering import Row, pairwise
from qkv.probes.probe import Probe, Setting
from qkv.spec import AttentionSpec

SIZE = "size"
"""The kind of these probes."""

Memory = Literal["contiguous", "strided", "expanded"]


@dataclass(frozen=True)
class Size:
    """The sizes of one call.

    Attributes:
        batch: sequences.
        num_heads: query heads.
        num_kv_heads: key/value heads.
        query_len: queries.
        key_len: keys.
        head_dim: channels of a query or key head.
        value_dim: channels of a value head.
        memory: how the arrays lie in memory; ``expanded``: one sequence's, for all of them, with a stride of zero.
    """

    batch: int
    num_heads: int
    num_kv_heads: int
    query_len: int
    key_len: int
    head_dim: int
    value_dim: int
    memory: Memory = "contiguous"

    @property
    def work(self) -> int:
        """Products of two numbers that attention of this size takes."""
        return self.batch * self.num_heads * self.query_len * self.key_len * (self.head_dim + self.value_dim)

    def __str__(self) -> str:
        sizes = f"batch {self.batch}, heads {self.num_heads}/{self.num_kv_heads}, query_len {self.query_len}, "
        sizes += f"key_len {self.key_len}, head_dim {self.head_dim}, value_dim {self.value_dim}"
        return sizes if self.memory == "contiguous" else f"{sizes}, {self.memory}"


LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 50, 100)
"""Around the blocks that kernels read, and ragged."""

MORE_LENGTHS = (7, 8, 9, 47, 48, 49, 95, 96, 97, 200, 255, 256, 257)

DIMS = (16, 20, 32, 40, 64, 80, 96, 128, 256)
"""Head dimensions of well-known models, and what lies between powers of two."""

MORE_DIMS = (2, 24, 48, 72, 112, 160, 192, 320, 512)

HEADS = ((1, 1), (5, 5))
SHARED_HEADS = ((2, 1), (6, 2), (3, 3), (5, 1))

NEEDS_KIND = {"one": "fewer-queries", "fewer": "fewer-queries", "other": "value-dim", "strided": "strided"}
"""The kind of ordinary probe without which a candidate isn't meant for a value of these axes."""


@dataclass(frozen=True)
class Axes:
    """The values of each size that a candidate may be given.

    Attributes:
        key_lens: numbers of keys.
        head_dims: channels of a query or key head.
        queries: how many queries there are: as many as keys, one, fewer or more.
        heads: numbers of query and key/value heads.
        batches: numbers of sequences.
        memories: how the arrays lie in memory.
        values: whether a value head has as many channels as a key head.
    """

    key_lens: Sequence[int]
    head_dims: Sequence[int]
    queries: Sequence[str]
    heads: Sequence[tuple[int, int]]
    batches: Sequence[int]
    memories: Sequence[Memory]
    values: Sequence[str]

    def covered(self) -> list[Size]:
        """Sizes in which any two values of different axes meet.

        Those in which each value occurs for the first time stand in front, and then those with the least work, so that
        whoever has no time for all of them misses little.
        """
        memories, values = self.memories, self.values
        axes = (self.key_lens, self.head_dims, self.queries, self.heads, self.batches, memories, values)
        made = {row: _size(*row) for row in pairwise(axes)}  # type: ignore[arg-type]  # the values of its axes
        rows = sorted(made, key=lambda row: made[row].work)
        first: list[Row] = []
        met: set[tuple[int, Hashable]] = set()
        for row in rows:
            if not met.issuperset(enumerate(row)):
                first.append(row)
                met.update(enumerate(row))
        return list(dict.fromkeys(made[row] for row in (*first, *rows)))


def axes_for(setting: Setting, stated: frozenset[str], refused: frozenset[str], *, more: bool = False) -> Axes:
    """The values of each size that a candidate may be given.

    Args:
        setting: what it is meant to compute, and what it takes.
        stated: fields of the spec that the user gave: these are not varied.
        refused: kinds of ordinary probes that it refused.
        more: whether the user wants it thorough.
    """
    spec, able = setting.spec, setting.abilities
    longest = able.max_tokens or max(MORE_LENGTHS)
    dims = DIMS + (MORE_DIMS if more else ())
    fixed_dim = "head_dim" in stated or (spec.rope is not None and spec.rope.dims is not None)
    queries = ["as many", "one", "fewer", *(["more"] if _any_query(spec) else [])]
    memories: list[Memory] = ["contiguous", "strided", *(["expanded"] if able.batched else [])]  # type: ignore[list-item]

    def meant(values: Sequence[str]) -> list[str]:
        return [value for value in values if NEEDS_KIND.get(value) not in refused]

    return Axes(
        [length for length in LENGTHS + (MORE_LENGTHS if more else ()) if length <= longest],
        [able.head_dim] if fixed_dim else dims,
        meant(queries),
        _heads(spec, able, stated),
        [1, 3] if able.batched else [1],
        meant(memories),  # type: ignore[arg-type]  # the same words
        meant(["same"] if "value_dim" in stated else ["same", "other"]),
    )


def _any_query(spec: AttentionSpec) -> bool:
    """Whether more queries than keys make sense: not where queries are later tokens than keys."""
    return spec.mask == Everything() and spec.rope is None and spec.alibi is None and spec.relative_bias is None


def _heads(spec: AttentionSpec, able: Abilities, stated: frozenset[str]) -> Sequence[tuple[int, int]]:
    each_its_own = spec.alibi is not None or spec.relative_bias is not None or spec.sinks
    if "num_heads" in stated or not able.free_heads or each_its_own:
        return [(able.num_heads, able.num_kv_heads)]
    return SHARED_HEADS if spec.group_size > 1 else HEADS


def _size(
    key_len: int, head_dim: int, queries: str, heads: tuple[int, int], batch: int, memory: Memory, value: str
) -> Size:
    half = (key_len + 1) // 2
    query_len = {"as many": key_len, "one": 1, "fewer": half, "more": key_len + half}[queries]
    value_dim = head_dim if value == "same" else head_dim + 4
    return Size(3 if memory == "expanded" else batch, *heads, query_len, key_len, head_dim, value_dim, memory)


def resized(setting: Setting, size: Size) -> Setting:
    """The same setting with the heads and channels of a size."""
    fields = {
        "num_heads": size.num_heads,
        "num_kv_heads": size.num_kv_heads,
        "head_dim": size.head_dim,
        "value_dim": size.value_dim,
    }
    return replace(setting, spec=setting.spec.but(**fields), abilities=replace(setting.abilities, **fields))  # type: ignore[arg-type]


def size_probe(setting: Setting, size: Size, draw: int = 0) -> Probe:
    """The probe of this size, with one of several draws of numbers."""
    inputs = resized(replace(setting, seed=setting.seed + draw), size).inputs(
        f"{SIZE} {size}", batch=size.batch, queries=size.query_len, keys=size.key_len
    )
    if size.memory == "expanded":
        assert inputs.key is not None
        assert inputs.value is not None
        inputs = inputs.but(
            key=np.broadcast_to(inputs.key[:1], inputs.key.shape),
            value=np.broadcast_to(inputs.value[:1], inputs.value.shape),
        )
    name = f"{SIZE} {size}" if not draw else f"{SIZE} {size} draw {draw}"
    return Probe(name, "last blocks and single sizes", inputs.but(strided=size.memory != "contiguous"), optional=True)
