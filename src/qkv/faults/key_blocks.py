"""Faults of keys that are computed block by block: how the blocks are joined, and what the loop over them changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from qkv.errors import ShapeError
from qkv.faults.as_if import quietly, unless
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by, pieces, split
from qkv.masks import Everything
from qkv.oracle import Array, Run
from qkv.oracle.stages import additive_bias, scale, softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_BLOCKS = (2, 4, 8, 16, 32, 64, 128)


def _blocks_of(run: Run, block: int) -> list[Array]:
    key_len = run.scores.shape[-1]
    unless(not 1 < block < key_len, "all keys fit into one block, or each is one")
    return [run.scores[..., start : start + block] for start in range(0, key_len, block)]


def _merged(size: Callable[[int], int], of_top: float, of_sum: float) -> Callable[[Run], Run]:
    """Softmax in each block, and the blocks weighted by their largest exponential and their sum, each to a power."""

    def merged(run: Run) -> Run:
        xp, inner, totals = run.xp, [], []
        for block in _blocks_of(run, size(run.scores.shape[-1])):
            top = xp.max(block, axis=-1, keepdims=True)
            shares = xp.exp(block - xp.where(xp.isfinite(top), top, xp.zeros_like(top)))
            total = xp.sum(shares, axis=-1, keepdims=True)
            inner.append(shares / xp.where(total == 0, xp.ones_like(total), total))
            seen = xp.isfinite(top)
            weight = of_top * top + of_sum * xp.log(xp.where(seen, total, xp.ones_like(total)))
            totals.append(xp.where(seen, weight, -math.inf))
        weights_of_blocks = softmax(run.but(scores=xp.concat(totals, axis=-1))).weights
        parts = [block * weights_of_blocks[..., place : place + 1] for place, block in enumerate(inner)]
        return run.but(weights=xp.concat(parts, axis=-1))

    return quietly(merged)


_SIZES: dict[str, Callable[[int], int]] = {
    **{f"blocks of {block} keys": (lambda key_len, block=block: block) for block in _BLOCKS},  # type: ignore[misc]
    **{f"{parts} parts": (lambda key_len, parts=parts: -(-key_len // parts)) for parts in (2, 3, 4)},  # type: ignore[misc]
}
"""How many keys a block has, by the number of keys in all."""


_LN2 = math.log(2)
_POWERS: dict[str, tuple[float, float]] = {
    "2^lse": (_LN2, _LN2),
    "e^(lse / ln 2)": (1 / _LN2, 1 / _LN2),
    "equal weights": (0.0, 0.0),
    "2^(max + log2(sum)), the largest score being to the base e": (_LN2, 1.0),
    "e^(max + log2(sum))": (1.0, 1 / _LN2),
    "e^max alone": (1.0, 0.0),
    "their sums alone": (0.0, 1.0),
}
"""What blocks are weighted by, as powers of the exponential of their largest score and of the sum below it."""


@fault(
    "lse-base",
    Stage.SOFTMAX,
    title="blocks of keys are joined by weights of another base",
    explanation=(
        "Blocks of keys that are computed apart are joined by exp(lse), lse being the largest score and the logarithm "
        "of what is summed below it. Kernels keep it to the base 2, and joined with e, or the other way round, or with "
        "one of the two left out, blocks count too much or too little. What fits into one block is right."
    ),
    repair="weight = torch.exp(lse - lse_max)  # exp2 if lse = log2(sum); torch.logaddexp joins two",
    commonness=1,
)
def lse_base(spec: AttentionSpec) -> Ways:
    """``sum_b w_b o_b`` with ``w_b`` from another power of ``e^m_b`` or of the sum than ``e^lse_b = e^m_b sum_b``."""
    if spec.sinks:
        return
    for words, size in _SIZES.items():
        for weight, powers in _POWERS.items():
            yield f"{words}, joined by {weight}", {Stage.SOFTMAX: _merged(size, *powers)}


@fault(
    "scale-in-block-loop",
    Stage.SCALE,
    title="the scale changes from block to block",
    explanation=(
        "Keys are read block by block, and the query (or the scale) is multiplied inside the loop and kept: the first "
        "block is scaled once, the second twice, and so on. What fits into one block is right, and later keys count "
        "too little or too much."
    ),
    repair="query = query * scale  # before the loop over the blocks",
    commonness=1,
)
def scale_in_block_loop(spec: AttentionSpec) -> Ways:
    """``a^(n + 1) q k^T`` in block ``n``, or ``a (1 / ln 2)^n q k^T``."""

    def growing(block: int, factor: Callable[[Run], float]) -> Callable[[Run], Run]:
        def scaled(run: Run) -> Run:
            by = factor(run)
            unless(by == 1, "multiplying by one changes nothing")
            parts = [part * by**place for place, part in enumerate(_blocks_of(run, block))]
            return scale(run.but(scores=run.xp.concat(parts, axis=-1)))

        return scaled

    factors: dict[str, Callable[[Run], float]] = {
        "the scale": lambda run: run.spec.scale_for(run.query.shape[-1]),
        "1/ln(2)": lambda run: 1 / math.log(2),
    }
    for block in _BLOCKS:
        for words, factor in factors.items():
            yield f"blocks of {block} keys, each times {words} once more", {Stage.SCALE: growing(block, factor)}


@fault(
    "key-positions-per-block",
    Stage.BIAS,
    title="keys are counted from the beginning of their block",
    explanation=(
        "A key's position is where its block begins plus its place in the block. Where the first is left out, each "
        "block is taken for the first one: distances are too large, and a causal mask lets later keys through. What "
        "fits into one block is right."
    ),
    repair="key_pos = start + arange(block)  # and not arange(block) alone",
    commonness=1,
)
def key_positions_per_block(spec: AttentionSpec) -> Ways:
    """``j % B`` for ``j`` in the distances of alibi, in the mask, or in both."""
    for block in _BLOCKS:
        words = f"blocks of {block} keys"
        biased, masked = {Stage.BIAS: _with_near_keys(block)}, {Stage.MASK: _masked_as_first(block)}
        if spec.alibi is not None:
            yield f"{words}, in alibi", biased
        if spec.mask != Everything():
            yield f"{words}, in the mask", masked
        if spec.alibi is not None and spec.mask != Everything():
            yield f"{words}, in alibi and in the mask", {**biased, **masked}


def _with_near_keys(block: int) -> Callable[[Run], Run]:
    def biased(run: Run) -> Run:
        unless(block >= run.scores.shape[-1], "all keys fit into one block")
        alibi = run.spec.alibi
        if alibi is None:
            raise ShapeError("there is no alibi here")
        query, key = run.token_positions()
        slopes = run.array(alibi.slopes_for(run.spec.num_heads))[:, None, None]
        ahead = [run.array(at[None, :] - query[:, None]) for at in (key, key % block)]
        right, wrong = ahead if alibi.signed else [-run.xp.abs(one) for one in ahead]
        added = additive_bias(run)
        return run.but(scores=run.scores + added + slopes * (wrong - right))

    return biased


def _masked_as_first(block: int) -> Callable[[Run], Run]:
    def masked(run: Run) -> Run:
        unless(block >= run.scores.shape[-1], "all keys fit into one block")
        at = run.positions()
        rest = split(run, "spec" if len(pieces(run)) > 1 else "whole")[1]
        return hidden_by(run, run.spec.mask.allows(replace(at, key=at.key % block)) & rest)

    return masked
