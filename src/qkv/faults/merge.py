"""Faults of the merge: the heads' context vectors are laid side by side in the wrong order."""

from __future__ import annotations

from qkv.faults.fault import Ways, fault
from qkv.faults.heads import merged_by_view
from qkv.faults.needs import GROUPED_HEADS, SEVERAL_HEADS
from qkv.faults.replacing import read_as
from qkv.oracle import Replacements, Run
from qkv.oracle.stages import merge
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _read_off(*axes: int) -> Replacements:
    """The context ``(batch, head, token, dim)``, its axes in another order, read as ``(batch, token, head * dim)``."""

    def replaced(run: Run) -> Run:
        batch, count, length, dim = run.context.shape
        moved = run.xp.permute_dims(run.context, axes)
        return run.but(context=read_as(run, moved, (batch, length, count * dim)))

    return {Stage.MERGE: replaced}


def _time_first(run: Run) -> Run:
    """The context read as ``(token, batch, head * dim)``, which is then handed back batch first."""
    batch, count, length, dim = run.context.shape
    read = read_as(run, run.context, (length, batch, count * dim))
    return run.but(context=run.xp.permute_dims(read, (1, 0, 2)))


@fault(
    "heads-merged-by-view",
    Stage.MERGE,
    title="the heads are merged by a view, without a transpose",
    explanation=(
        "The context lies in memory head by head. Read as (batch, token, head * dim) without a transpose, a token's "
        "row is made of several tokens of one head in place of one token of every head. Weights and context vectors "
        "are right; nearly every merged row is wrong, the first tokens get what belongs to later ones, and a causal "
        "model sees the future. With a single query, as in decoding, both orders are the same."
    ),
    repair="context = context.transpose(1, 2).reshape(batch, length, num_heads * head_dim)",
    needs=[SEVERAL_HEADS],
    commonness=3,
)
def heads_merged_by_view(spec: AttentionSpec) -> Ways:
    """``context.reshape(B, T, H * d)`` of ``(B, H, T, d)``; or after moving the wrong axes."""
    yield "", {Stage.MERGE: merged_by_view}
    yield "after transpose(2, 3)", _read_off(0, 1, 3, 2)
    yield "with the heads before the batch", _read_off(1, 0, 2, 3)
    yield "with the tokens before the batch", _read_off(2, 0, 1, 3)
    yield "read as (token, batch, head * dim)", {Stage.MERGE: _time_first}


@fault(
    "heads-merged-interleaved",
    Stage.MERGE,
    title="the heads are merged channel by channel",
    explanation=(
        "A token's row is meant to hold all channels of head 0, then all of head 1. Here it holds channel 0 of every "
        "head, then channel 1 of every head. Each row has the right numbers in the wrong places, and what "
        "comes after it reads them as other channels': every row of the output is wrong, and none leaks into another."
    ),
    repair="context = rearrange(context, 'b h n d -> b n (h d)')  # not (d h)",
    needs=[SEVERAL_HEADS],
)
def heads_merged_interleaved(spec: AttentionSpec) -> Ways:
    """``b h n d -> b n (d h)`` for ``b n (h d)``."""
    yield _read_off(0, 2, 3, 1)


@fault(
    "heads-merged-out-of-order",
    Stage.MERGE,
    title="grouped heads are merged in the wrong order",
    explanation=(
        "Query heads are kept by key/value head and by place in its group. Merged with the place in the group first, "
        "the right context vectors stand in other heads' places. The first and the last head are right, those between "
        "mostly not, in every row."
    ),
    repair="context = rearrange(context, 'b kv g n d -> b n (kv g d)')  # not (g kv d)",
    needs=[GROUPED_HEADS],
    commonness=1,
)
def heads_merged_out_of_order(spec: AttentionSpec) -> Ways:
    """``b kv g n d -> b n (g kv d)`` for ``b n (kv g d)``, or the other way."""

    def reordered(rows: int, columns: int) -> Replacements:
        order = [head for column in range(columns) for head in range(column, rows * columns, columns)]

        def replaced(run: Run) -> Run:
            return merge(run.but(context=run.xp.stack([run.context[:, head, ...] for head in order], axis=1)))

        return {Stage.MERGE: replaced}

    yield "the place in the group comes first", reordered(spec.kv_heads, spec.group_size)
    if spec.kv_heads != spec.group_size:
        yield "as if they had been kept with the place in the group first", reordered(spec.group_size, spec.kv_heads)
