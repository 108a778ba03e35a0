"""The oracle in memory linear in length: the same stages on one block of queries and keys after the other.

No row of scores is ever whole. The softmax keeps, for each query, the top score so far, the sum of the shares relative
to it, and the values weighted by these shares; when a later block has a higher score, what is kept is shrunk to fit.
Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from qkv.masks import Positions
from qkv.oracle import stages
from qkv.oracle.inputs import Array, Inputs
from qkv.oracle.run import Run
from qkv.spec import AttentionSpec

SCORE_STAGES = (stages.scores, stages.scale, stages.softcap, stages.bias, stages.mask)
ALL = slice(None)


def stream(spec: AttentionSpec, inputs: Inputs, *, block: int = 512) -> Array:
    """The output of ``run_stages``, ``(batch, query, width)``, made without any array of all queries by all keys.

    Args:
        spec: what to compute.
        inputs: what to compute it from. A mask or a bias handed over is as large as its caller made it.
        block: how many queries and how many keys are taken at a time.
    """
    run = stages.position(stages.heads(stages.project(Run(spec, inputs))))
    query_len, _ = inputs.lengths
    whole = Block(spec, inputs, query=run.query, key=run.key, value=run.value, at=run.positions())
    contexts = [context(whole.cut(queries, ALL), block) for queries in blocks(query_len, block)]
    return stages.output(stages.merge(run.but(context=run.xp.concat(contexts, axis=2)))).output


@dataclass(frozen=True, kw_only=True)
class Block(Run):
    """Some queries and some keys of a longer run. The stages see each of them at its position in the whole.

    Attributes:
        at: where these queries and keys stand.
    """

    at: Positions

    def positions(self) -> Positions:
        """Where queries and keys stand, as masks read it."""
        return self.at

    def token_positions(self) -> tuple[Array, Array]:
        """Absolute positions of the queries and of the keys, ``(query,)`` and ``(key,)``."""
        return self.at.query[0, 0, :, 0], self.at.key[0, 0, 0, :]

    def cut(self, queries: slice, keys: slice) -> Block:
        """The block of some of these queries and some of these keys."""
        inputs, positions = self.inputs, dataclasses.fields(Positions)
        return Block(
            self.spec,
            inputs.but(may_attend=cut(inputs.may_attend, queries, keys), bias=cut(inputs.bias, queries, keys)),
            query=self.query[:, :, queries, :],
            key=self.key[:, :, keys, :],
            value=self.value[:, :, keys, :],
            at=Positions(**{field.name: cut(getattr(self.at, field.name), queries, keys) for field in positions}),
        )


def cut(array: Array | None, queries: slice, keys: slice) -> Array | None:
    """A block of an array that broadcasts to ``(batch, head, query, key)``: an axis 1 long serves every block."""
    if array is None or array.ndim == 0:
        return array
    array = array if array.shape[-1] == 1 else array[..., keys]
    return array if array.ndim == 1 or array.shape[-2] == 1 else array[..., queries, :]


def blocks(length: int, size: int) -> Iterator[slice]:
    """Slices of ``size`` that cover ``length``; the last one may be shorter."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


@dataclass(frozen=True)
class Sums:
    """What is kept of the keys seen so far, for each query of a block.

    Attributes:
        top: the highest score, ``(batch, head, query, 1)``.
        total: the sum of ``exp(score - top)``, likewise.
        context: the sum of the values, each times its ``exp(score - top)``, ``(batch, head, query, value_dim)``.
    """

    top: Array
    total: Array
    context: Array


def context(rows: Block, size: int) -> Array:
    """The context vectors of a block of queries over all keys, ``(batch, head, query, value_dim)``."""
    sums = sums_before_any_key(rows)
    for keys in blocks(rows.key.shape[2], size):
        part = rows.cut(ALL, keys)
        if bool(rows.xp.any(rows.spec.mask.allows(part.at))):
            sums = with_block(sums, part)
    return context_from(sums, rows)


def sums_before_any_key(rows: Block) -> Sums:
    """Nothing, or each head's sink, which has a score and no value."""
    xp = rows.xp
    nothing = xp.zeros_like(rows.query[..., :1])
    sinks = rows.inputs.sinks if rows.spec.sinks else None
    top = nothing - float("inf") if sinks is None else nothing + xp.reshape(sinks, (1, -1, 1, 1))
    return Sums(top, total=xp.exp(top - finite(rows, top)), context=nothing + xp.zeros_like(rows.value[..., :1, :]))


def with_block(sums: Sums, part: Run) -> Sums:
    """The sums with the keys of one more block in them."""
    for stage in SCORE_STAGES:
        part = stage(part)
    xp = part.xp
    top = xp.maximum(sums.top, xp.max(part.scores, axis=-1, keepdims=True))
    kept = xp.exp(sums.top - finite(part, top))
    shares = xp.exp(part.scores - finite(part, top))
    return Sums(
        top,
        total=sums.total * kept + xp.sum(shares, axis=-1, keepdims=True),
        context=sums.context * kept + xp.matmul(shares, part.value),
    )


def context_from(sums: Sums, rows: Block) -> Array:
    """The weighted values over the sum of their weights, and the rule for empty rows where there were no weights."""
    xp, rule = rows.xp, rows.spec.empty_row
    empty = sums.top == -float("inf")
    context = sums.context / xp.where(empty, xp.ones_like(sums.total), sums.total)
    if rule == "uniform":
        return xp.where(empty, xp.mean(rows.value, axis=2, keepdims=True), context)
    return xp.where(empty, rows.array(0.0 if rule == "zero" else float("nan")), context)


def finite(run: Run, top: Array) -> Array:
    """The top score, or 0 where there is none yet, so that it can be taken off a score of minus infinity."""
    return run.xp.where(run.xp.isfinite(top), top, run.xp.zeros_like(top))
