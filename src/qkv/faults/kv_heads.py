"""Faults of grouped heads: a query head reads the wrong key/value head, or a list of keys that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qkv.faults.as_if import as_if
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import GROUPED_HEADS, SEVERAL_KV_HEADS
from qkv.faults.replacing import (
    by_shape,
    chain,
    impossible,
    read_as,
    unshared,
)
from qkv.masks import Causal
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import bias, heads, mask, position
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def reading_heads(head_of: Callable[[int], int], roles: Iterable[str] = ("key", "value")) -> Replacements:
    """The ``heads`` stage in which query head ``h`` reads key/value head ``head_of(h)``."""
    reading = tuple(roles)

    def replaced(run: Run) -> Run:
        done = heads(run)
        chosen = [head_of(head) for head in range(run.spec.num_heads)]
        if max(chosen) >= run.spec.kv_heads:
            raise impossible(f"there is no key/value head {max(chosen)}")

        def read(x: Array) -> Array:
            alone = unshared(run, x)
            return run.xp.stack([alone[:, head, ...] for head in chosen], axis=1)

        return done.but(**{role: read(getattr(done, role)) for role in reading})

    return {Stage.HEADS: replaced}


@fault(
    "kv-heads-tiled",
    Stage.HEADS,
    title="key/value heads are tiled, not repeated",
    explanation=(
        "Query heads that stand side by side share a key/value head: 0 0 0 1 1 1. Tiling (.repeat, .expand on the "
        "wrong axis, tile) lines the heads up as 0 1 0 1 0 1. The first and the last head still read the right one; "
        "the heads between them that read another one are wrong in every row."
    ),
    repair="key = key.repeat_interleave(num_heads // num_kv_heads, dim=1)  # and value",
    needs=[GROUPED_HEADS],
    commonness=3,
)
def kv_heads_tiled(spec: AttentionSpec) -> Ways:
    """``kv(h) = h % num_kv_heads`` for ``h // group_size``."""
    yield "", reading_heads(lambda head: head % spec.kv_heads)
    for role in ("key", "value"):
        yield f"{role} only", reading_heads(lambda head: head % spec.kv_heads, [role])


@fault(
    "kv-head-divisor",
    Stage.HEADS,
    title="the key/value head of a query head is counted wrongly",
    explanation=(
        "Query head h reads key/value head h // group_size, where group_size = num_heads // num_kv_heads. Another "
        "divisor, or a constant 0, sends heads to the wrong one. The heads whose number comes out the same, the first "
        "of them always, are right; the others are wrong in every row."
    ),
    repair="kv_head = head // (num_heads // num_kv_heads)",
    needs=[SEVERAL_KV_HEADS],
)
def kv_head_divisor(spec: AttentionSpec) -> Ways:
    """``kv(h) = 0``, for one of key and value too, ``h // num_kv_heads``, or ``h % group_size``."""
    right = [head // spec.group_size for head in range(spec.num_heads)]
    tiled = [head % spec.kv_heads for head in range(spec.num_heads)]
    counts: dict[str, Callable[[int], int]] = {
        "every head reads key/value head 0": lambda head: 0,
        "head // num_kv_heads": lambda head: head // spec.kv_heads,
        "head % group_size": lambda head: head % spec.group_size,
    }
    seen = [right, tiled]
    for note, head_of in counts.items():
        chosen = [head_of(head) for head in range(spec.num_heads)]
        if max(chosen) < spec.kv_heads and chosen not in seen:
            seen.append(chosen)
            yield note, reading_heads(head_of)
    for role in ("key", "value"):
        yield f"every head reads head 0's {role}", reading_heads(lambda head: 0, [role])


def _repeated_and_viewed(run: Run) -> Run:
    """Each token repeated ``group_size`` times, and the memory of that read as ``num_heads`` heads."""

    def one(x: Array) -> Array:
        batch, _, length, dim = x.shape
        repeated = run.xp.repeat(unshared(run, x), run.spec.group_size, axis=2)
        return read_as(run, repeated, (batch, run.spec.num_heads, length, dim))

    return run.but(key=one(run.key), value=one(run.value))


def _longer(run: Run) -> Run:
    """``group_size`` times as many keys: each token several times in a row."""
    for name in ("may_attend", "is_token", "bias"):
        if getattr(run.inputs, name) is not None:
            raise impossible(f"{name} is made for key_len keys, and there are group_size times as many")
    group = run.spec.group_size
    return run.but(key=run.xp.repeat(run.key, group, axis=2), value=run.xp.repeat(run.value, group, axis=2))


@fault(
    "kv-heads-repeated-on-tokens",
    Stage.HEADS,
    title="key and value are repeated along the tokens, not the heads",
    explanation=(
        "Repeating group_size times along the wrong axis makes a list of keys k0 k0 k1 k1 instead of more heads. Cut "
        "into num_heads pieces, each head sees only a part of the tokens, several times each; left as one long list, "
        "each token merely counts several times, but a causal mask counts the list's places and hides the wrong ones. "
        "Nearly every row of every head is wrong."
    ),
    repair="key = key.repeat_interleave(num_heads // num_kv_heads, dim=1)  # key is (batch, head, token, dim)",
    needs=[GROUPED_HEADS],
)
def kv_heads_repeated_on_tokens(spec: AttentionSpec) -> Ways:
    """``(B, Hkv, T, G, d)`` read as ``(B, H, T, d)``; or ``T * G`` keys ``k_0 k_0 k_1 k_1`` under a mask by place."""
    if spec.group_size == 1:
        return
    yield "and then viewed as num_heads heads", {Stage.POSITION: chain(position, _repeated_and_viewed)}
    if spec.masks(Causal):
        for corner in ("top_left", "bottom_right"):
            yield (
                f"and the mask is {corner.replace('_', '-')} over the longer list",
                {
                    Stage.POSITION: chain(position, _longer),
                    Stage.BIAS: by_shape(as_if(bias, query_offset=corner)),
                    Stage.MASK: by_shape(as_if(mask, query_offset=corner)),
                },
            )
