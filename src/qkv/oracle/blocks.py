"""Blocks: some queries and some keys of a longer run, which the stages see at their positions in the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from qkv.masks import Positions
from qkv.oracle import stages
from qkv.oracle.inputs import Array, Inputs
from qkv.oracle.run import Run
from qkv.spec import AttentionSpec

ALL = slice(None)
Own = TypeVar("Own", bound="Block")


@dataclass(frozen=True, kw_only=True)
class Block(Run):
    """Some queries and some keys of a longer run, in heads already. The stages from ``position`` on can be run on it.

    Attributes:
        at: where these queries and keys stand.
        begun: query, key and value as they were before ``position``.
    """

    at: Positions
    begun: Mapping[str, Array] = field(default_factory=dict, repr=False)

    def positions(self) -> Positions:
        """Where queries and keys stand, as masks read it."""
        return self.at

    def token_positions(self) -> tuple[Array, Array]:
        """Absolute positions of the queries and of the keys, ``(query,)`` and ``(key,)``."""
        return self.at.query[0, 0, :, 0], self.at.key[0, 0, 0, :]

    def cut(self: Own, queries: Any, keys: Any) -> Own:
        """The block of some of these queries and some of these keys, as slices or as arrays of their numbers."""
        inputs = self.inputs
        if inputs.may_attend is not None or inputs.bias is not None:
            inputs = inputs.but(may_attend=cut(inputs.may_attend, queries, keys), bias=cut(inputs.bias, queries, keys))
        parts = {"query": queries, "key": keys, "value": keys}
        return self.but(
            inputs=inputs,
            **{name: getattr(self, name)[:, :, part, :] for name, part in parts.items()},
            begun={name: array[:, :, parts[name], :] for name, array in self.begun.items()},
            at=Positions(*(cut(getattr(self.at, field.name), queries, keys) for field in _POSITIONS)),
        )


_POSITIONS = dataclasses.fields(Positions)


def cut(array: Array | None, queries: Any, keys: Any) -> Array | None:
    """A block of an array that broadcasts to ``(batch, head, query, key)``: an axis 1 long serves every block."""
    if array is None or array.ndim == 0:
        return array
    array = array if array.shape[-1] == 1 else array[..., keys]
    return array if array.ndim == 1 or array.shape[-2] == 1 else array[..., queries, :]


def blocks(length: int, size: int) -> Iterator[slice]:
    """Slices of ``size`` that cover ``length``; the last one may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def each_head(spec: AttentionSpec, inputs: Inputs) -> Iterator[tuple[int, int, Block]]:
    """Each head of each sequence as an attention of its own, in float64, before rope: batch, head and the block."""
    run = _in_heads(spec, inputs)
    at = run.positions()
    for batch in range(inputs.batch):
        for head in range(spec.num_heads):
            yield batch, head, _one_head(run, at, batch, head)


def all_heads(spec: AttentionSpec, inputs: Inputs) -> Block:
    """All heads of a run as one block, in float64, before rope: whoever looks at a few rows closely cuts these out."""
    run = _in_heads(spec, inputs)
    query, key, value = (_precise(run.xp, x) for x in (run.query, run.key, run.value))
    if inputs.query is not None:
        inputs = inputs.but(query=query, key=key, value=value)
    inputs = inputs.map(lambda array: _precise(run.xp, array))
    block = Block(spec, inputs, query=query, key=key, value=value, at=run.positions())
    if key.shape[1] < spec.num_heads:
        block = block.but(key=stages.share_heads(block, key), value=stages.share_heads(block, value))
    return block.but(begun={"query": block.query, "key": block.key, "value": block.value})


def _precise(xp: ModuleType, array: Array) -> Array:
    """The array in float64, if it holds floating numbers."""
    return xp.astype(array, xp.float64, copy=False) if xp.isdtype(array.dtype, "real floating") else array


def _in_heads(spec: AttentionSpec, inputs: Inputs) -> Run:
    """The run up to the heads, in float64. Heads that were handed over wait as they are: one at a time costs less."""
    if inputs.query is not None and spec.qk_norm is None:
        return stages.project(Run(spec, inputs))
    xp = Run(spec, inputs).xp
    return stages.heads(stages.project(Run(spec, inputs.map(lambda array: _precise(xp, array)))))


def _one_head(run: Run, at: Positions, batch: int, head: int) -> Block:
    inputs, xp = run.inputs, run.xp
    kv_head = head if run.key.shape[1] == run.spec.num_heads else head // run.spec.group_size
    query, key, value = (
        _precise(xp, x[batch : batch + 1, one : one + 1])
        for x, one in ((run.query, head), (run.key, kv_head), (run.value, kv_head))
    )
    alone = Inputs(
        query=query,
        key=key,
        value=value,
        may_attend=_share(inputs.may_attend, batch, head),
        bias=_share(inputs.bias, batch, head),
        sinks=None if inputs.sinks is None else _precise(xp, inputs.sinks[head : head + 1]),
    )
    where = Positions(*(_share(getattr(at, field.name), batch, head) for field in _POSITIONS))
    return Block(_spec_of(run.spec, head), alone, query=query, key=key, value=value, at=where)


def _share(array: Array | None, batch: int, head: int) -> Array | None:
    """One head's part of an array that broadcasts to ``(batch, head, query, key)``, its axes kept."""
    if array is None or array.ndim < 3:
        return array
    array = array if array.shape[-3] == 1 else array[..., head : head + 1, :, :]
    return array if array.ndim < 4 or array.shape[0] == 1 else array[batch : batch + 1]


def _spec_of(spec: AttentionSpec, head: int) -> AttentionSpec:
    """The spec of one query head alone. What came before the heads is done."""
    alibi, relative = spec.alibi, spec.relative_bias
    return spec.but(
        num_heads=1,
        num_kv_heads=1,
        qk_norm=None,
        out_proj=False,
        alibi=alibi and dataclasses.replace(alibi, slopes=(alibi.slopes_for(spec.num_heads)[head],)),
        relative_bias=relative and dataclasses.replace(relative, table=(relative.table[head],)),
    )
