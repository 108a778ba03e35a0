"""The oracle in memory linear in length: the same stages on one block of queries and keys after the other.

No row of scores is ever whole. The softmax keeps, for each query, the top score so far, the sum of the shares relative
to it, and the values weighted by these shares; when a later block has a higher score, what is kept is shrunk to fit.
Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax". Where no score can be large, shares
are relative to 0 throughout, and nothing has to be shrunk.

Heads are taken one at a time, so that a block fits into a processor's cache, and blocks of queries on several threads:
matrix products and exponentials let go of Python's lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from threadpoolctl import threadpool_limits

from qkv.masks import Span
from qkv.oracle import stages
from qkv.oracle.blocks import ALL, Block, blocks, each_head
from qkv.oracle.inputs import Array, Inputs
from qkv.oracle.run import Run
from qkv.spec import AttentionSpec

BLOCK = 512, 512
"""Queries and keys of a block: its scores are 2 MiB, which stay in a processor's cache."""

MODEST = 80.0
"""Scores up to this size can be taken as they are: their exponentials are numbers, in float32 too."""

THREADS = os.cpu_count() or 1
Result = TypeVar("Result")


def stream(spec: AttentionSpec, inputs: Inputs, *, block: tuple[int, int] = BLOCK) -> Array:
    """The output of ``run_stages``, ``(batch, query, width)``, made without any array of all queries by all keys.

    Args:
        spec: what to compute.
        inputs: what to compute it from. A mask or a bias handed over is as large as its caller made it.
        block: how many queries and how many keys are taken at a time.
    """
    run = stages.project(Run(spec, inputs))
    parts = [part.context for part in contexts(spec, inputs, block=block)]
    whole = run.xp.concat(parts, axis=2)  # 1 1 batch*head*query value_dim
    query_len, _ = inputs.lengths
    context = run.xp.reshape(whole, (inputs.batch, spec.num_heads, query_len, whole.shape[-1]))
    return stages.output(stages.merge(run.but(context=context))).output


@dataclass(frozen=True)
class Rows:
    """The context vectors of some queries of one head of one sequence.

    Attributes:
        batch: number of the sequence.
        head: number of the query head.
        queries: which queries.
        context: ``(1, 1, query, value_dim)``.
    """

    batch: int
    head: int
    queries: slice
    context: Array


def contexts(
    spec: AttentionSpec,
    inputs: Inputs,
    *,
    mixer: Array | None = None,
    block: tuple[int, int] = BLOCK,
    quick: bool = False,
) -> Iterator[Rows]:
    """The context vectors in float64, one block of queries after the other, one head and sequence after the other.

    Args:
        spec: what to compute.
        inputs: what to compute it from, in any precision.
        mixer: ``(num_heads, value_dim, channel)``, multiplies the context vectors of each head from the right. It is
            applied to the values, so fewer channels cost less.
        block: how many queries and how many keys are taken at a time.
        quick: scores and shares in float32, which is done in little more than half the time. The result is then off by
            the rounding of each, and by no rounding of sums over keys: these stay in float64.
    """
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        yield from in_turn(pool, _tasks(spec, inputs, mixer, block, quick))


def _tasks(
    spec: AttentionSpec, inputs: Inputs, mixer: Array | None, block: tuple[int, int], quick: bool
) -> Iterator[Callable[[], Rows]]:
    for batch, head, one in each_head(spec, inputs):
        one = one.but(spec=one.spec.but(mask=spec.mask.alone(batch, head)))
        ready = _ready(one, None if mixer is None else mixer[head], quick)
        for queries in blocks(inputs.lengths[0], block[0]):

            def task(batch: int = batch, head: int = head, ready: Ready = ready, queries: slice = queries) -> Rows:
                return Rows(batch, head, queries, _context(ready.cut(queries, ALL), block[1]))

            yield task


def in_turn(pool: ThreadPoolExecutor, tasks: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """The results of the tasks in their order; few are begun ahead, so that few are in memory or left to wait for."""
    begun: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            begun.append(pool.submit(task))
            if len(begun) > 2 * THREADS:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()


# --- the softmax, block by block --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ready(Block):
    """A head in its positions, scaled, and with a last channel of ones in its value: their context is the total.

    Attributes:
        modest: whether no score can be large.
    """

    modest: bool


def _ready(head: Block, mixer: Array | None, quick: bool) -> Ready:
    turned, xp = stages.position(head), head.xp
    query, key = turned.query * head.spec.scale_for(head.query.shape[-1]), turned.key
    if quick:
        query, key = xp.astype(query, xp.float32), xp.astype(key, xp.float32)
    value = head.value if mixer is None else xp.matmul(head.value, mixer)
    value = xp.concat([value, xp.ones_like(value[..., :1])], axis=-1)
    return Ready(**{**vars(head), "query": query, "key": key, "value": value}, modest=_modest(head, query, key))


def _modest(head: Block, query: Array, key: Array) -> bool:
    """Whether no score can be large: the lengths of query and key bound their product, and nothing is added to it."""
    spec, xp = head.spec, head.xp
    if head.inputs.bias is not None or spec.alibi is not None or spec.relative_bias is not None or spec.sinks:
        return False
    longest = [xp.max(xp.sum(x * x, axis=-1)) ** 0.5 for x in (query, key)]
    return bool(longest[0] * longest[1] < MODEST)


@dataclass(frozen=True)
class Sums:
    """What is kept of the keys seen so far, for each query of a block.

    Attributes:
        top: the highest score, or 0 where all are modest, ``(1, 1, query, 1)``.
        context: the sum of the values, each times its ``exp(score - top)``; their last channel is one, so its sum is
            the total of these shares.
    """

    top: Array
    context: Array


def _context(rows: Ready, size: int) -> Array:
    """The context vectors of a block of queries over all keys."""
    sums = _before_any_key(rows)
    for keys in blocks(rows.key.shape[2], size):
        part = rows.cut(ALL, keys)
        sees = _sees(part)
        if sees is not False:
            sums = _with_block(sums, part, masked=sees is None)
    return _weighted_mean(sums, rows)


def _sees(part: Block) -> bool | None:
    """Whether the queries see all of these keys, or none of them; None where some do."""
    query, key = part.token_positions()
    span = Span(int(query[0]), int(query[-1]), int(key[0]), int(key[-1]))
    reach = part.spec.mask.reach(span, part.at)
    if not reach.some or not (reach.every or bool(part.xp.any(part.spec.mask.allows(part.at)))):
        return False
    handed = part.inputs.may_attend is not None or part.at.key_is_token is not None
    return True if reach.every == span.keys() and not handed else None


def _before_any_key(rows: Ready) -> Sums:
    """Nothing, or the head's sink, which has a score and no value."""
    xp = rows.xp
    nothing = xp.zeros_like(rows.query[..., :1])
    context = nothing + xp.zeros_like(rows.value[..., :1, :])
    if not rows.spec.sinks or rows.inputs.sinks is None:
        return Sums(nothing if rows.modest else nothing - float("inf"), context)
    return Sums(nothing + rows.inputs.sinks, xp.concat([context[..., :-1], nothing + 1], axis=-1))


def _with_block(sums: Sums, part: Ready, *, masked: bool) -> Sums:
    """The sums with the keys of one more block in them."""
    xp, run = part.xp, stages.bias(stages.softcap(stages.scores(part)))  # scaled already, see _ready
    run = stages.mask(run) if masked else run
    if part.modest:
        return Sums(sums.top, sums.context + _mixed(xp.exp(run.scores), part))
    top = xp.maximum(sums.top, xp.max(run.scores, axis=-1, keepdims=True))
    finite = xp.where(xp.isfinite(top), top, xp.zeros_like(top))  # it is taken off scores of minus infinity
    kept = sums.context * xp.exp(sums.top - finite)
    return Sums(top, kept + _mixed(xp.exp(run.scores - finite), part))


def _mixed(shares: Array, part: Block) -> Array:
    """The values, each times its share, in the values' own precision."""
    return part.xp.matmul(part.xp.astype(shares, part.value.dtype, copy=False), part.value)


def _weighted_mean(sums: Sums, rows: Block) -> Array:
    """The weighted values over the sum of their weights, and the rule for empty rows where there were no weights."""
    xp, rule, total = rows.xp, rows.spec.empty_row, sums.context[..., -1:]
    empty = total == 0
    context = sums.context[..., :-1] / xp.where(empty, xp.ones_like(total), total)
    if rule == "uniform":
        return xp.where(empty, xp.mean(rows.value[..., :-1], axis=2, keepdims=True), context)
    return xp.where(empty, rows.array(0.0 if rule == "zero" else float("nan")), context)
