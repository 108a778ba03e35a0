"""Faults of softmax done block by block, as fast kernels do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

from qkv.faults.as_if import quietly, unless, with_empty_rows
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import allowed, softmax, weights_from
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)
Further = Iterator[tuple[str, Replacements]]


def _shares_by_block(run: Run, block: int, power: float) -> tuple[Array, Array]:
    """Exponentials less the largest score of the blocks so far, and less the largest of all: what each key counts.

    The first are brought to the largest of all by ``power`` of what that takes.
    """
    xp, scores = run.xp, run.scores
    key_len = scores.shape[-1]
    unless(block >= key_len, "all keys fit into one block")
    final = _finite(run, xp.max(scores, axis=-1, keepdims=True))
    so_far, parts = None, []
    for start in range(0, key_len, block):
        piece = scores[..., start : start + block]
        top = xp.max(piece, axis=-1, keepdims=True)
        so_far = top if so_far is None else xp.maximum(so_far, top)
        here = _finite(run, so_far)
        parts.append(xp.exp(piece - here + power * (here - final)))
    return xp.concat(parts, axis=-1), xp.exp(scores - final)


def _finite(run: Run, top: Array) -> Array:
    return run.xp.where(run.xp.isfinite(top), top, run.xp.zeros_like(top))


def _not_rescaled(block: int, what: Literal["both", "context", "sum"], power: float = 0.0) -> Callable[[Run], Run]:
    def blocked(run: Run) -> Run:
        stale, right = _shares_by_block(run, block, power)
        above = right if what == "sum" else stale
        below = run.xp.sum(right if what == "context" else stale, axis=-1, keepdims=True)
        empty = run.xp.sum(right, axis=-1, keepdims=True) == 0
        return run.but(weights=run.xp.where(empty, softmax(run).weights, above / below))

    return quietly(blocked)


def _further_not_rescaled(run: Run) -> Further:
    for block in _larger_blocks(run) if not run.spec.sinks else ():
        yield f"blocks of {block} keys", {Stage.SOFTMAX: _not_rescaled(block, "both")}
        yield f"blocks of {block} keys, the sum is rescaled", {Stage.SOFTMAX: _not_rescaled(block, "context")}
        yield f"blocks of {block} keys, the context is rescaled", {Stage.SOFTMAX: _not_rescaled(block, "sum")}


def _larger_blocks(run: Run) -> Iterator[int]:
    """Blocks that only long inputs have several of."""
    return (2**power for power in range(8, 16) if 2**power < run.inputs.lengths[1])


@fault(
    "online-softmax-max",
    Stage.SOFTMAX,
    title="softmax in blocks doesn't rescale when the maximum moves",
    explanation=(
        "Softmax block by block takes the largest score so far off, and when a later block has a larger one, what "
        "was summed before must be multiplied by exp(old - new). Without it earlier keys count too much; with exp "
        "where the rest is to the base 2, or the other way round, a little too much or too little. Rows whose largest "
        "score lies in the first block are right, and so is everything that fits into one block."
    ),
    repair=(
        "correction = torch.exp(old_max - new_max)\n"
        "total, acc = total * correction + block_total, acc * correction + block_acc"
    ),
    commonness=1,
    further=_further_not_rescaled,
)
def online_softmax_max(spec: AttentionSpec) -> Ways:
    """``exp(s_j - m_block(j))`` for ``exp(s_j - m)`` in the context, in the sum, or in both; or rescaled by a power."""
    if spec.sinks:
        return
    for block in _BLOCKS:
        keys = "1 key" if block == 1 else f"{block} keys"
        yield f"blocks of {keys}", {Stage.SOFTMAX: _not_rescaled(block, "both")}
        yield f"blocks of {keys}, the sum is rescaled", {Stage.SOFTMAX: _not_rescaled(block, "context")}
        yield f"blocks of {keys}, the context is rescaled", {Stage.SOFTMAX: _not_rescaled(block, "sum")}
        for words, power in (("e and not 2", 1 / math.log(2)), ("2 and not e", math.log(2))):
            note = f"blocks of {keys}, rescaled to the base {words}"
            yield note, {Stage.SOFTMAX: _not_rescaled(block, "both", power)}


def _further_tails(run: Run) -> Further:
    for block in _larger_blocks(run):
        yield f"blocks of {block} keys, the last one dropped", {Stage.MASK: _tail_dropped(block)}
        yield f"blocks of {block} keys, the last one filled up with zeros", {Stage.SOFTMAX: _tail_filled(block)}


@fault(
    "tail-block",
    Stage.SOFTMAX,
    title="the last, unfilled block of keys is dropped or filled up",
    explanation=(
        "Keys are read in blocks, and the last one is rarely full. Rounded down, its keys are lost; rounded up, "
        "keys that don't exist count with score 0 and value 0. Rows that don't need the last block are right when "
        "its keys are lost, and so is every length that is a multiple of the block."
    ),
    repair="num_blocks = (key_len + block - 1) // block  # and hide what lies beyond key_len",
    general=True,  # one extra key is softmax-off-by-one
    commonness=1,
    further=_further_tails,
)
def tail_block(spec: AttentionSpec) -> Ways:
    """Sums over ``n * (key_len // n)`` keys, or over ``n * ceil(key_len / n)``, the extra ones with score 0."""
    for block in _BLOCKS[1:]:
        note = f"blocks of {block} keys, the last one dropped"
        yield note, {Stage.MASK: _tail_dropped(block)}
        yield from with_empty_rows(
            spec, {Stage.MASK: _tail_dropped(block, the_only_one=True)}, f"{note} even if alone", lowered=False
        )
    for block in _BLOCKS[1:]:
        yield f"blocks of {block} keys, the last one filled up with zeros", {Stage.SOFTMAX: _tail_filled(block)}


def _tail_dropped(block: int, *, the_only_one: bool = False) -> Callable[[Run], Run]:
    def dropped(run: Run) -> Run:
        key_len = run.scores.shape[-1]
        alone = key_len < block and not the_only_one
        unless(key_len % block == 0 or alone, "the last block is full, or the only one")
        return hidden_by(run, allowed(run) & (run.positions().key < key_len - key_len % block))

    return dropped


def _tail_filled(block: int) -> Callable[[Run], Run]:
    def filled(run: Run) -> Run:
        missing = -run.scores.shape[-1] % block
        unless(missing == 0, "the last block is full")
        shape = (*run.scores.shape[:-1], missing)
        extra = run.xp.broadcast_to(run.xp.zeros_like(run.scores[..., :1]), shape)
        weights = weights_from(run, run.xp.concat([run.scores, extra], axis=-1))
        return run.but(weights=weights[..., :-missing])

    return filled
