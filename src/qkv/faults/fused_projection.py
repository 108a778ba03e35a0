"""Faults of fused projections: one matrix holds query, key and value, and its rows are read in another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations

import array_api_compat
import numpy as np

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import FUSED
from qkv.faults.replacing import changed, impossible, with_parameters
from qkv.oracle import Array, Linear, Parameters, Replacements, Run
from qkv.oracle.stages import project
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Rows = np.ndarray
"""Numbers of rows of the fused matrix, in the order in which a projection takes them."""


@dataclass(frozen=True)
class Sizes:
    """What a fused matrix is made of: heads, and rows that each head takes."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int

    @property
    def parts(self) -> tuple[int, int, int]:
        """Rows of query, key and value."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.value_dim

    @property
    def alike(self) -> bool:
        """Whether query, key and value take the same number of rows, head by head."""
        return self.heads == self.kv_heads and self.head_dim == self.value_dim


Reading = Callable[[Sizes], dict[str, Rows]]
"""Which rows of the fused matrix are query, key and value; those that are not in it are left out."""


def _cut(rows: Rows, order: str, sizes: dict[str, int]) -> dict[str, Rows]:
    """The last axis cut into pieces that stand in this order: ``qkv``, ``qvk``, ``kv`` ..."""
    ends = np.cumsum([0, *(sizes[letter] for letter in order)])
    return {letter: rows[..., a:b].reshape(-1) for letter, (a, b) in zip(order, pairwise(ends), strict=True)}


def _blocks(order: str) -> Reading:
    """All of one after all of another: ``[Q | K | V]``."""

    def read(sizes: Sizes) -> dict[str, Rows]:
        rows_of = dict(zip("qkv", sizes.parts, strict=True))
        return _cut(np.arange(sum(rows_of[letter] for letter in order)), order, rows_of)

    return read


def _per_kv_head(order: str, *, first: str = "") -> Reading:
    """Group by group ``[q .. q k v]``; with ``first="q"`` all queries first, then ``[k v]`` head by head."""

    def read(sizes: Sizes) -> dict[str, Rows]:
        rows_of = {letter: rows // sizes.kv_heads for letter, rows in zip("qkv", sizes.parts, strict=True)}
        ahead = sizes.parts[0] if first else 0
        width = sum(rows_of[letter] for letter in order)
        grouped = ahead + np.arange(sizes.kv_heads * width).reshape(sizes.kv_heads, width)
        return {**({"q": np.arange(ahead)} if first else {}), **_cut(grouped, order, rows_of)}

    return read


def _axes(axes: str, letters: str = "qkv") -> Reading:
    """Rows counted along the axes qkv (``3``), head and dim in some order: ``h d 3`` has the three side by side."""

    def read(sizes: Sizes) -> dict[str, Rows]:
        if not (sizes.alike if "q" in letters else sizes.head_dim == sizes.value_dim):
            raise impossible("query, key and value don't have the same heads")
        lengths = {"3": len(letters), "h": sizes.kv_heads, "d": sizes.head_dim}
        rows = np.arange(math.prod(lengths.values())).reshape([lengths[axis] for axis in axes])
        by_part = rows.transpose([axes.index(axis) for axis in "3hd"])
        return {letter: part.reshape(-1) for letter, part in zip(letters, by_part, strict=True)}

    return read


def _shards(count: int, order: str) -> Reading:
    """Cut into ``count`` pieces for as many devices, each of which holds ``[q | k | v]`` of its own heads."""

    def read(sizes: Sizes) -> dict[str, Rows]:
        if sizes.kv_heads % count:
            raise impossible(f"{sizes.kv_heads} key/value heads can't be shared by {count} devices")
        rows_of = {letter: rows // count for letter, rows in zip("qkv", sizes.parts, strict=True)}
        return _cut(np.arange(sum(sizes.parts)).reshape(count, -1), order, rows_of)

    return read


def _read_as(reading: Reading, letters: str = "qkv") -> Replacements:
    """The projections taken from the fused matrix by a reading."""

    def reread(run: Run, right: Parameters) -> Parameters:
        fused = right.fused
        if fused is None:
            raise impossible("there is no fused projection")
        q_proj, v_proj, spec = right.q_proj, right.v_proj, run.spec
        sizes = Sizes(
            spec.num_heads,
            spec.kv_heads,
            q_proj.weight.shape[0] // spec.num_heads,
            v_proj.weight.shape[0] // spec.kv_heads,
        )
        held = sum(rows for letter, rows in zip("qkv", sizes.parts, strict=True) if letter in letters)
        if fused.weight.shape[0] != held:
            raise impossible(f"the fused projection has {fused.weight.shape[0]} rows and not {held}")
        read = {f"{letter}_proj": _taken(run, fused, rows) for letter, rows in reading(sizes).items()}
        if all(_same(run, projection, getattr(right, name)) for name, projection in read.items()):
            raise impossible("this is the right layout")
        return changed(right, **read)

    return {Stage.PROJECT: with_parameters(project, reread)}


def _taken(run: Run, fused: Linear, rows: Rows) -> Linear:
    index = run.xp.asarray(rows, device=array_api_compat.device(fused.weight))
    bias: Array | None = None if fused.bias is None else run.xp.take(fused.bias, index, axis=0)
    return Linear(run.xp.take(fused.weight, index, axis=0), bias)


def _same(run: Run, one: Linear, other: Linear) -> bool:
    return tuple(one.weight.shape) == tuple(other.weight.shape) and bool(run.xp.all(one.weight == other.weight))


def _readings() -> Iterator[tuple[str, str, Reading]]:
    yield "qkv", "as [Q | K | V]", _blocks("qkv")
    yield "qkv", "per head, as [q k v]", _per_kv_head("qkv")
    yield "qkv", "as [Q | k v per head]", _per_kv_head("kv", first="q")
    for axes in ("hd3", "3dh", "d3h", "dh3"):
        words = " ".join({"3": "qkv", "h": "head", "d": "dim"}[axis] for axis in axes)
        yield "qkv", f"as ({words})", _axes(axes)
    for order in map("".join, permutations("qkv")):
        if order != "qkv":
            yield "qkv", f"as [{' | '.join(order.upper())}]", _blocks(order)
            yield "qkv", f"per head, as [{' '.join(order)}]", _per_kv_head(order)
    yield "qkv", "in 4 shards of [q | v | k]", _shards(4, "qvk")
    yield "kv", "as [K | V]", _blocks("kv")
    yield "kv", "as [V | K]", _blocks("vk")
    yield "kv", "per head, as [k v]", _per_kv_head("kv")
    yield "kv", "as (head dim kv)", _axes("hd3", "kv")
    yield "kv", "as (kv dim head)", _axes("3dh", "kv")


@fault(
    "fused-qkv-layout",
    Stage.PROJECT,
    title="the fused projection is cut in the wrong order",
    explanation=(
        "One matrix holds query, key and value, and there are many orders in use: all queries first, head by head, "
        "feature by feature, group by group. Cut in another order than it was packed in, the sizes still fit while "
        "query, key and value get rows of each other. Nearly every row of every head is wrong; a head whose rows "
        "happen to be the same in both orders is right."
    ),
    repair="query, key, value = qkv.view(batch, length, num_heads, 3, head_dim).unbind(3)  # for [q k v] per head",
    needs=[FUSED],
    commonness=2,
)
def fused_qkv_layout(spec: AttentionSpec) -> Ways:
    """Rows of the fused weight read as thirds, per head, interleaved, per group: any order but the right one."""
    for letters, note, reading in _readings():
        yield f"read {note}", _read_as(reading, letters)


@fault(
    "fused-qkv-sharded",
    Stage.PROJECT,
    title="the fused projection is cut across query, key and value for several devices",
    explanation=(
        "For tensor parallelism each device takes its own heads' part of the query, of the key and of the value. "
        "Cutting the fused matrix [Q | K | V] straight into equal pieces gives the first device mostly queries and "
        "the last one mostly values, which each takes for its own query, key and value. Nearly every head is wrong."
    ),
    repair="shard = torch.cat([part.chunk(world_size)[rank] for part in weight.split([q_rows, k_rows, v_rows])])",
    needs=[FUSED],
    commonness=1,
)
def fused_qkv_sharded(spec: AttentionSpec) -> Ways:
    """Device ``r`` of ``R`` takes rows ``r/R`` to ``(r+1)/R`` of the whole fused matrix as its ``[q | k | v]``."""
    for count in (2, 4, 8):
        if spec.kv_heads % count == 0:
            yield f"over {count} devices", _read_as(_shards(count, "qkv"))
