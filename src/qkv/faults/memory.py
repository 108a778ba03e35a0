"""Faults of memory: an array is read as if it were laid out another way than it is."""

from __future__ import annotations

import math

from qkv.faults.as_if import unless
from qkv.faults.fault import Ways, fault
from qkv.faults.heads import split_back_to_front, split_by_view
from qkv.faults.needs import SEVERAL_HEADS
from qkv.faults.replacing import apart, chain, impossible, normed_and_shared, parameters, read_as, side_by_side
from qkv.oracle import Run, StageFunction
from qkv.oracle.stages import heads, linear, project, split_heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _where_strided(stage: StageFunction) -> StageFunction:
    """``stage`` where query, key and value are handed over strided, and the right one where they are contiguous."""

    def read(run: Run) -> Run:
        contiguous = run.inputs.query is not None and not run.inputs.strided
        return heads(run) if contiguous else stage(run)

    return read


def _key_as_columns(run: Run) -> Run:
    """A key kept as ``(batch, head, dim, token)``, read as ``(batch, head, token, dim)``."""
    flat = side_by_side(run)
    key = split_heads(run, flat.key, run.spec.kv_heads)
    columns = run.xp.permute_dims(key, (0, 1, 3, 2))
    return normed_and_shared(
        flat.but(
            query=split_heads(run, flat.query, run.spec.num_heads),
            key=read_as(run, columns, tuple(key.shape)),
            value=split_heads(run, flat.value, run.spec.kv_heads),
        )
    )


def _slices_read_on(run: Run) -> Run:
    """Slices of a fused ``[q | k | v]`` read on from where each begins, as if nothing stood between their rows."""
    fused = parameters(run).fused
    if fused is None or run.inputs.x is None or run.inputs.source is not None:
        raise impossible("query, key and value are not made by one fused projection")
    memory = run.xp.reshape(linear(run, run.inputs.x, fused), (-1,))
    start, read = 0, {}
    for role, right in (("query", run.query), ("key", run.key), ("value", run.value)):
        size = right.shape[0] * right.shape[1] * right.shape[2]
        if start + size > memory.shape[0]:
            raise impossible(f"the {role} would be read past the end of the memory")
        read[role] = run.xp.reshape(memory[start : start + size], tuple(right.shape))
        start += right.shape[2]
    return run.but(**read)


@fault(
    "strided-read-as-contiguous",
    Stage.HEADS,
    title="a strided array is read as if it were contiguous",
    explanation=(
        "transpose(), slicing and expand() move no numbers; they only note down in which order to step through the "
        "memory. A kernel that is handed the bare pointer and ignores the steps reads the numbers in the order they "
        "lie in: rows of other tokens and heads. Nearly every row of every head is wrong; if it is the value alone, "
        "the weights are right. With contiguous inputs all is right, so a test on fresh tensors does not show it."
    ),
    repair="query, key, value = (x.contiguous() for x in (query, key, value))  # or pass the strides on",
    needs=[SEVERAL_HEADS],
    commonness=1,
)
def strided_read_as_contiguous(spec: AttentionSpec) -> Ways:
    """``(B, T, H, d)`` in memory, transposed to ``(B, H, T, d)`` by strides alone, read as ``(B, H, T, d)``."""
    parts = {
        "query, key and value": ("query", "key", "value"),
        "the value": ("value",),
        "key and value": ("key", "value"),
        "the query": ("query",),
        "the key": ("key",),
    }
    for note, roles in parts.items():
        yield f"{note}, kept as (batch, token, head, dim)", {Stage.HEADS: _where_strided(split_by_view(roles))}
        yield f"{note}, kept as (batch, head, token, dim)", {Stage.HEADS: _where_strided(split_back_to_front(roles))}
        yield f"{note}, transposed on the way", {Stage.HEADS: split_by_view(roles)}
    yield "the key, kept as (batch, head, dim, token)", {Stage.HEADS: _key_as_columns}
    yield "query, key and value, slices of one fused array", {Stage.PROJECT: chain(project, _slices_read_on)}


@fault(
    "inputs-changed",
    Stage.PROJECT,
    title="the arguments are changed in place",
    explanation=(
        "The output is right, but afterwards the caller's own arrays hold other numbers: the next layer, the next call "
        "or the backward pass reads them. It comes from in-place operations (masked_fill_, mul_, +=) on an argument or "
        "on a view of one."
    ),
    repair="attn_scores = attn_scores.masked_fill(hidden, float('-inf'))  # without the underscore, or on a clone",
    commonness=1,
    watched=True,
)
def inputs_changed(spec: AttentionSpec) -> Ways:
    """Right numbers, and arguments that no longer hold what they held. Seen by comparing them bit by bit."""
    yield from ()


def _wrapped(limit: int, roles: tuple[str, ...]) -> StageFunction:
    """The heads stage where numbers from place ``limit`` on are read from the beginning again."""

    def replaced(run: Run) -> Run:
        done, wrapped = apart(run), {}
        for role in roles:
            x = getattr(done, role)
            places = run.xp.arange(math.prod(x.shape)) % limit
            wrapped[role] = run.xp.reshape(run.xp.take(run.xp.reshape(x, (-1,)), places, axis=0), x.shape)
        unless(all(math.prod(getattr(done, role).shape) <= limit for role in roles), "no index is as large as that")
        return normed_and_shared(done.but(**wrapped))

    return replaced


@fault(
    "index-overflow",
    Stage.HEADS,
    title="an index is too large for its type and starts again from 0",
    explanation=(
        "A number's place in memory is counted in a type that ends at a power of two: 2^16 for 16 bits, 2^32 for 32. "
        "Beyond it the count starts again from 0 (or below 0, which crashes), and the last tokens, heads or sequences "
        "are read from the front of the array. Smaller arrays are right, so it takes a large one to see it."
    ),
    repair="offset = batch_index.to(tl.int64) * stride  # 64 bits before the product, not after",
    commonness=1,
)
def index_overflow(spec: AttentionSpec) -> Ways:
    """``k`` and ``v`` read at place ``n mod 2^bits``."""
    for bits in (8, 10, 12, 15, 16):
        for words, roles in {"key and value": ("key", "value"), "query, key and value": ("query", "key", "value"),
                             "the value": ("value",)}.items():  # fmt: skip
            yield f"{words}, from 2^{bits} numbers on", {Stage.HEADS: _wrapped(2**bits, roles)}


@fault(
    "mask-mutated",
    Stage.MASK,
    title="the mask is changed in place",
    explanation=(
        "The output is right, but the mask that was handed over holds something else afterwards: the next layer, which "
        "is handed the same one, hides other keys. In a model of one layer nothing shows."
    ),
    repair="mask = mask | ~is_token[:, None, None, :]  # a new array; |= and masked_fill_ change the caller's",
    commonness=1,
    watched=True,
)
def mask_mutated(spec: AttentionSpec) -> Ways:
    """Right numbers, and a mask that no longer holds what it held. Seen by comparing it bit by bit."""
    yield from ()
