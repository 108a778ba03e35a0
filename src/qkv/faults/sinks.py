"""Faults of the sinks: a learned score for each head that takes weight and gives no value."""

from __future__ import annotations

import math
from collections.abc import Callable

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if, quietly, unless
from qkv.faults.constants import named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import SEVERAL_HEADS, SINKS
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _with_sinks(change: Callable[[Run, Array], Array]) -> Replacements:
    def changed(run: Run) -> Run:
        sinks = run.inputs.sinks
        if sinks is None:
            raise ShapeError("there are no sinks here")
        other = change(run, sinks)

        def seen(inputs: Inputs) -> Inputs:
            return inputs.but(sinks=other)

        return as_if(softmax, inputs=seen)(run)

    return {Stage.SOFTMAX: changed}


def _counted(times: float) -> Replacements:
    return _with_sinks(lambda run, sinks: sinks + math.log(max(times, 1e-300)))


@fault(
    "sink-missing",
    Stage.SOFTMAX,
    title="the sinks are left out",
    explanation=(
        "Each head has a sink: one more score in the sum of softmax, which takes weight and gives no value, so that "
        "a head can attend to nothing. Without it (or with the weights brought back to a sum of 1) every weight is "
        "too large, in every row, the first one too."
    ),
    repair=(
        "sinks = sinks.view(1, -1, 1, 1).expand_as(attn_scores[..., :1])\n"
        "attn_scores = torch.cat([attn_scores, sinks], dim=-1)\n"
        "attn_weights = torch.softmax(attn_scores, dim=-1)[..., :-1]"
    ),
    needs=[SINKS],
    commonness=2,
)
def sink_missing(spec: AttentionSpec) -> Ways:
    """``exp(s) / sum exp(s)`` for ``exp(s) / (sum exp(s) + exp(sink))``."""
    if spec.sinks:
        yield {Stage.SOFTMAX: as_if(softmax, sinks=False)}


def _times_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    return f"the sink counts {named(value, {str(n): float(n) for n in range(2, 65)})} times"


@fault(
    "sink-counted-per-block",
    Stage.SOFTMAX,
    title="the sink is counted more than once",
    explanation=(
        "The sink belongs into the sum of softmax once. Where softmax runs block by block it's added with every "
        "block, so it takes too much weight. Every row is wrong whose keys need more than one block, and all "
        "weights are too small."
    ),
    repair="total = total + torch.exp(sinks - running_max)  # once, after the last block",
    needs=[SINKS],
    families=[Family(_counted, (2.0, 5.0, 0.5, 0.1, 20.0), _times_note)],
    commonness=1,
)
def sink_counted_per_block(spec: AttentionSpec) -> Ways:
    """``sum exp(s) + n exp(sink)``, with ``n`` a number, or as many as there are blocks of keys."""
    if not spec.sinks:
        return
    for times in (2, 3, 4):
        yield f"the sink counts {times} times", _counted(times)
    for block in (1, 2, 4, 8, 16, 32, 64, 128):
        for words, count in _COUNTS.items():
            note = f"the sink counts once with every block of {block} keys{words}"
            yield note, _counted_in_blocks(block, count)
            yield f"{note}, and once more at the start", _counted_in_blocks(block, count, more=1)


Blocks = Callable[[Run, Array, int], Array]
"""Which blocks a row goes through, ``(…, query, block)``: of those that it sees a key of, and the size of a block."""


def _of_the_tile(run: Run, seen: Array, size: int) -> Array:
    """Those that any row of a tile with as many queries as a block has keys sees a key of."""
    query_len = seen.shape[-2]
    tiles = [seen[..., start : start + size, :] for start in range(0, query_len, size)]
    wide = [run.xp.broadcast_to(run.xp.any(tile, axis=-2, keepdims=True), tile.shape) for tile in tiles]
    return run.xp.concat(wide, axis=-2)


_COUNTS: dict[str, Blocks] = {
    "": lambda run, seen, size: run.xp.ones_like(seen),
    " of which a row sees any": lambda run, seen, size: seen,
    " that a tile of queries sees": _of_the_tile,
}


def _counted_in_blocks(block: int, count: Blocks, more: int = 0) -> Replacements:
    def counted(run: Run) -> Run:
        xp, done = run.xp, softmax(run)
        starts = range(0, run.scores.shape[-1], block)
        seen = xp.stack([xp.any(run.scores[..., at : at + block] > -math.inf, axis=-1) for at in starts], axis=-1)
        times = xp.sum(xp.astype(count(run, seen, block), done.weights.dtype), axis=-1, keepdims=True) + more
        unless(bool(xp.all(times <= 1)), "all keys fit into one block")
        of_sink = 1 - xp.sum(done.weights, axis=-1, keepdims=True)
        return done.but(weights=done.weights / (1 + (xp.clip(times, 1, None) - 1) * of_sink))

    return {Stage.SOFTMAX: counted}


@fault(
    "sink-of-other-head",
    Stage.SOFTMAX,
    title="a head uses another head's sink",
    explanation=(
        "Every query head has its own sink. Read by key/value head, in the wrong order, or from head 0 for all, the "
        "heads get each other's. Heads whose sink happens to agree are right, every row of the others is wrong."
    ),
    repair="sinks = sinks.reshape(1, num_heads, 1, 1)",
    needs=[SINKS, SEVERAL_HEADS],
    commonness=1,
)
def sink_of_other_head(spec: AttentionSpec) -> Ways:
    """``sink_h'`` for ``sink_h``."""
    if not spec.sinks or spec.num_heads == 1:
        return

    def taken(heads: list[int]) -> Replacements:
        return _with_sinks(lambda run, sinks: run.xp.concat([sinks[head : head + 1] for head in heads], axis=0))

    every = range(spec.num_heads)
    orders = {
        "head 0's for all": [0 for head in every],
        "the first num_kv_heads sinks, shared by groups": [head // spec.group_size for head in every],
        "the first num_kv_heads sinks, over and over": [head % spec.kv_heads for head in every],
        "in the reverse order": [spec.num_heads - 1 - head for head in every],
        "the heads before": [(head - 1) % spec.num_heads for head in every],
        "the heads after": [(head + 1) % spec.num_heads for head in every],
    }
    seen = {tuple(every)}
    for note, order in orders.items():
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield note, taken(order)


@fault(
    "sink-scaled",
    Stage.SOFTMAX,
    title="the sink is changed before it enters softmax",
    explanation=(
        "The sink is a finished score: it is not scaled, and it enters softmax as it is. Multiplied by the scale "
        "with the other scores, taken for a weight whose logarithm is meant, or added to the sum without the largest "
        "score that was taken off the others, it takes too much or too little. Every row is wrong."
    ),
    repair=(
        "sinks = sinks.view(1, -1, 1, 1).expand_as(attn_scores[..., :1])  # as they are\n"
        "attn_scores = torch.cat([attn_scores * scale, sinks], dim=-1)\n"
        "total = total + torch.exp(sinks - running_max)  # where the sum is made by hand"
    ),
    needs=[SINKS],
    commonness=1,
)
def sink_scaled(spec: AttentionSpec) -> Ways:
    """``exp(a sink)``, ``exp(-sink)``, ``sink`` itself or ``exp(sink + m)`` for ``exp(sink)``."""
    if not spec.sinks:
        return
    if spec.scale != 1:
        yield "times the scale", _with_sinks(lambda run, sinks: sinks * run.spec.scale_for(run.query.shape[-1]))
    yield "with the sign turned", _with_sinks(lambda run, sinks: -sinks)
    yield "its exponential, taken once more by softmax", _with_sinks(lambda run, sinks: run.xp.exp(sinks))
    for words, counts in (("largest score", False), ("largest score, it included,", True)):
        yield f"the {words} is taken off the others and not off it", {Stage.SOFTMAX: _not_shifted(counts)}


def _not_shifted(counts: bool) -> Callable[[Run], Run]:
    """``exp(s - m) / (sum exp(s - m) + exp(sink))``; ``counts``: whether ``m`` may be the sink."""

    def left(run: Run) -> Run:
        xp, sinks = run.xp, run.xp.reshape(run.inputs.sinks, (1, -1, 1, 1))
        top = xp.max(run.scores, axis=-1, keepdims=True)
        empty, top = top == -math.inf, xp.maximum(top, sinks) if counts else top
        shares = xp.exp(run.scores - top)
        weights = shares / (xp.sum(shares, axis=-1, keepdims=True) + xp.exp(sinks))
        return run.but(weights=xp.where(empty, softmax(run).weights, weights))

    return quietly(left)
