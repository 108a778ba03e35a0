"""Faults of the heads: the width is cut into heads the wrong way, or the wrong axis takes the tokens' place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qkv.faults.as_if import as_if
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import SEVERAL_HEADS, SEVERAL_SEQUENCES
from qkv.faults.replacing import (
    by_shape,
    chain,
    impossible,
    normed_and_shared,
    parameters,
    read_as,
    side_by_side,
)
from qkv.masks import Everything
from qkv.oracle import Array, Run, StageFunction
from qkv.oracle.stages import bias, heads, linear, mask, merge_heads, position, split_heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

ROLES = ("query", "key", "value")
_PARTS = {"value": ("value",), "key and value": ("key", "value"), "query": ("query",), "key": ("key",)}


def split_by_view(roles: Iterable[str]) -> StageFunction:
    """The ``heads`` stage with some of query, key and value read as ``(batch, head, token, dim)``, not transposed."""
    viewed = tuple(roles)

    def replaced(run: Run) -> Run:
        flat = side_by_side(run)
        changes = {}
        for role in ROLES:
            x = getattr(flat, role)
            count = run.spec.num_heads if role == "query" else run.spec.kv_heads
            batch, length, width = x.shape
            shape = (batch, count, length, width // count)
            changes[role] = read_as(run, x, shape) if role in viewed else split_heads(run, x, count)
        return normed_and_shared(flat.but(**changes))

    return replaced


def merged_by_view(run: Run) -> Run:
    """``(batch, head, token, dim)`` read as ``(batch, token, head * dim)``."""
    batch, count, length, dim = run.context.shape
    return run.but(context=read_as(run, run.context, (batch, length, count * dim)))


def split_back_to_front(roles: Iterable[str]) -> StageFunction:
    """The ``heads`` stage with ``(batch, head, token, dim)`` in memory read as ``(batch, token, head, dim)``."""
    viewed = tuple(roles)

    def replaced(run: Run) -> Run:
        changes = {}
        for role in viewed:
            x = getattr(run, role)
            if x.ndim != 4:
                raise impossible("query, key and value come without heads")
            batch, count, length, dim = x.shape
            changes[role] = split_heads(run, read_as(run, x, (batch, length, count * dim)), count)
        return normed_and_shared(run.but(**changes))

    return replaced


def _merged_back_to_front(run: Run) -> Run:
    """``(batch, token, head, dim)`` in memory read as ``(batch, head, token, dim)``, then merged rightly."""
    batch, count, length, dim = run.context.shape
    flat = merge_heads(run, run.context)
    return run.but(context=merge_heads(run, read_as(run, flat, (batch, count, length, dim))))


def _fused_view(shape: Callable[[int, int, int, int], tuple[int, ...]], axis: int) -> StageFunction:
    """The ``heads`` stage on a fused projection that is viewed with its axes in the wrong order and cut along one."""

    def replaced(run: Run) -> Run:
        fused = parameters(run).fused
        if fused is None or run.inputs.source is not None:
            raise impossible("query, key and value are not made by one fused projection")
        together = linear(run, run.inputs.x, fused)
        batch, length, width = together.shape
        viewed = read_as(run, together, shape(batch, run.spec.num_heads, length, width // 3 // run.spec.num_heads))
        size = viewed.shape[axis] // 3
        before = (slice(None),) * (axis % viewed.ndim)
        parts = [viewed[(*before, slice(size * part, size * (part + 1)), ...)] for part in range(3)]
        changes = {}
        for role, x in zip(ROLES, parts, strict=True):
            count = run.spec.num_heads if role == "query" else run.spec.kv_heads
            flat = getattr(run, role)
            changes[role] = read_as(run, x, (batch, count, length, flat.shape[-1] // count))
        return normed_and_shared(run.but(**changes))

    return replaced


@fault(
    "heads-split-by-view",
    Stage.HEADS,
    title="the heads are split by a view, without a transpose",
    explanation=(
        "The projection lies in memory as (batch, token, head, dim). Reading it as (batch, head, token, dim) moves no "
        "number: what is called head 0 is then the first num_heads-th of the tokens with all their channels, cut into "
        "pieces. Nearly every row of every head is wrong, and since a head's rows come from other tokens than it "
        "says, a causal mask hides the wrong ones. First split the last axis, then transpose."
    ),
    repair="query = query.view(batch, length, num_heads, head_dim).transpose(1, 2)",
    needs=[SEVERAL_HEADS],
    commonness=3,
)
def heads_split_by_view(spec: AttentionSpec) -> Ways:
    """``q.view(B, H, T, d)`` for ``q.view(B, T, H, d).transpose(1, 2)``; likewise k and v, any of them or all."""
    everything = split_by_view(ROLES)
    yield "query, key and value", {Stage.HEADS: everything}
    yield (
        "query, key and value, and the heads are merged by a view too",
        {Stage.HEADS: everything, Stage.MERGE: merged_by_view},
    )
    for note, roles in _PARTS.items():
        yield f"{note} only", {Stage.HEADS: split_by_view(roles)}
    yield "(batch, head, token, dim) is read as (batch, token, head, dim)", {Stage.HEADS: split_back_to_front(ROLES)}
    yield (
        "(batch, head, token, dim) is read as (batch, token, head, dim), and back the same way",
        {Stage.HEADS: split_back_to_front(ROLES), Stage.MERGE: _merged_back_to_front},
    )
    if spec.kv_heads == spec.num_heads:
        yield from _fused_views()


def _fused_views() -> Ways:
    views = {
        "qkv.view(batch, 3, num_heads, length, head_dim)": _fused_view(lambda b, h, t, d: (b, 3, h, t, d), 1),
        "qkv.view(3, batch, num_heads, length, head_dim)": _fused_view(lambda b, h, t, d: (3, b, h, t, d), 0),
        "qkv.view(batch, num_heads, length, 3 * head_dim)": _fused_view(lambda b, h, t, d: (b, h, t, 3 * d), -1),
    }
    for note, stage in views.items():
        yield note, {Stage.HEADS: stage}


# --- another axis in the tokens' place --------------------------------------------------------------------------------


def _over(mixed: StageFunction, back: StageFunction, *, masked: bool) -> dict[Stage, StageFunction]:
    """Attention along another axis: ``mixed`` puts it in the tokens' place, ``back`` puts the context right again."""
    own_mask = mask if masked else as_if(mask, mask=Everything())
    return {
        Stage.HEADS: chain(heads, mixed),
        Stage.POSITION: by_shape(position),
        Stage.BIAS: by_shape(bias),
        Stage.MASK: by_shape(own_mask),
        Stage.MERGE: back,
    }


def _padding_along_the_batch(run: Run) -> Run:
    """A token attends to those at its own place in the other sequences, unless they are padding."""
    if run.inputs.is_token is None:
        return run
    is_token = run.xp.permute_dims(run.inputs.is_token, (1, 0))[:, None, None, :]
    return run.but(scores=run.xp.where(is_token, run.scores, run.array(-float("inf"))))


def _maskings(spec: AttentionSpec) -> list[tuple[str, bool]]:
    if spec.mask == Everything():
        return [("", True)]
    return [(", and the mask runs along it too", True), (", and nothing is masked", False)]


def _permuted(axes: tuple[int, int, int, int]) -> StageFunction:
    def mixed(run: Run) -> Run:
        if run.query.shape[2] != run.key.shape[2]:
            raise impossible("there are more queries than keys, or fewer")
        return run.but(**{role: run.xp.permute_dims(getattr(run, role), axes) for role in ROLES})

    return mixed


def _joined(run: Run) -> Run:
    def one(x: Array) -> Array:
        batch, count, length, dim = x.shape
        return run.xp.reshape(run.xp.permute_dims(x, (1, 0, 2, 3)), (1, count, batch * length, dim))

    return run.but(query=one(run.query), key=one(run.key), value=one(run.value))


def _separated(run: Run) -> Run:
    batch = run.inputs.batch
    flat = merge_heads(run, run.context)
    return run.but(context=run.xp.reshape(flat, (batch, flat.shape[1] // batch, flat.shape[2])))


@fault(
    "attends-over-batch",
    Stage.HEADS,
    title="tokens attend to the other sequences of the batch",
    explanation=(
        "The axis that the scores compare is the batch, not the tokens: token 3 of one sequence looks at token 3 of "
        "the others, and never at its own neighbours. Every row of every head is wrong, and a sequence's result "
        "changes with what else is in the batch; with one sequence alone the output is just the value. The usual "
        "cause is a layer that expects (length, batch, dim), as torch.nn.MultiheadAttention does unless "
        "batch_first=True."
    ),
    repair="attention = torch.nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)",
    needs=[SEVERAL_SEQUENCES],
    commonness=3,
)
def attends_over_batch(spec: AttentionSpec) -> Ways:
    """``softmax over b' of q[b, t] k[b', t]``; or over all tokens of all sequences, flattened into one."""

    def back(run: Run) -> Run:  # (token, head, batch, dim)
        token, count, batch, dim = run.context.shape
        context = run.xp.permute_dims(run.context, (2, 0, 1, 3))
        return run.but(context=run.xp.reshape(context, (batch, token, count * dim)))

    for note, masked in _maskings(spec):
        yield f"along the batch{note}", _over(_permuted((2, 1, 0, 3)), back, masked=masked)
    padded = _over(_permuted((2, 1, 0, 3)), back, masked=False) | {Stage.MASK: _padding_along_the_batch}
    yield "along the batch, and so does the padding", padded
    for note, masked in _maskings(spec):
        yield f"all sequences joined into one{note}", _over(_joined, _separated, masked=masked)


@fault(
    "attends-over-heads",
    Stage.HEADS,
    title="heads attend to each other, and tokens to nobody",
    explanation=(
        "Query and key are still (batch, token, head, dim) when they are multiplied, so the scores compare the heads "
        "of one token: (batch, token, head, head). No token ever sees another one; changing a token changes its own "
        "row only. Every row of every head is wrong. Transpose tokens and heads before the product."
    ),
    repair="query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # (batch, head, token, dim)",
    needs=[SEVERAL_HEADS],
    commonness=2,
)
def attends_over_heads(spec: AttentionSpec) -> Ways:
    """``softmax over h' of q[b, t, h] k[b, t, h']``."""
    if spec.alibi is not None or spec.relative_bias is not None or spec.sinks:
        return  # one number per head, where there are now tokens: the shapes don't fit
    over = _permuted((0, 2, 1, 3))
    merges = {"": _flattened, ", and the result is transposed as if it had heads first": _transposed_once_more}
    for merge_note, back in merges.items():
        for note, masked in _maskings(spec):
            stages = _over(over, back, masked=masked)
            right_rope = {**stages, Stage.HEADS: heads, Stage.POSITION: chain(position, over)}
            yield f"along the heads{note}{merge_note}", stages if spec.rope is None else right_rope
            if spec.rope is not None and masked:
                yield f"along the heads, rope too{note}{merge_note}", stages


def _flattened(run: Run) -> Run:
    batch, token, count, dim = run.context.shape
    return run.but(context=read_as(run, run.context, (batch, token, count * dim)))


def _transposed_once_more(run: Run) -> Run:
    batch, token, count, dim = run.context.shape
    heads_first = run.xp.permute_dims(run.context, (0, 2, 1, 3))
    return run.but(context=read_as(run, heads_first, (batch, token, count * dim)))
