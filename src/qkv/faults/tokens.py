"""Faults of the tokens: what is projected, or was, has been mixed along the tokens or read in another order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qkv.faults.as_if import unless
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CAUSAL, PROJECTIONS
from qkv.faults.replacing import chain, given, read_as
from qkv.oracle import Array, Inputs, Run, StageFunction
from qkv.oracle.stages import output, project
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_Mixer = Callable[[Run, Array], Array]
"""From an array of tokens, in whatever axes, to one in which tokens have been mixed."""


def _with_next(run: Run, x: Array) -> Array:
    """Each token's mean with the one after it; the last alone."""
    return run.xp.concat([(x[..., :-1, :] + x[..., 1:, :]) / 2, x[..., -1:, :]], axis=-2)


def _with_neighbours(run: Run, x: Array) -> Array:
    """Each token's mean with the ones before and after it, zeros beyond the ends: an average pool of three."""
    none = run.xp.zeros_like(x[..., :1, :])
    padded = run.xp.concat([none, x, none], axis=-2)
    return (padded[..., :-2, :] + x + padded[..., 2:, :]) / 3


def _with_all(run: Run, x: Array) -> Array:
    """Each token plus the mean of all."""
    return x + run.xp.mean(x, axis=-2, keepdims=True)


def _with_block(size: int) -> _Mixer:
    """Each token plus the mean of its block; a last block that isn't full is a block of its own."""

    def mixed(run: Run, x: Array) -> Array:
        blocks = [x[..., start : start + size, :] for start in range(0, x.shape[-2], size)]
        return run.xp.concat([block + run.xp.mean(block, axis=-2, keepdims=True) for block in blocks], axis=-2)

    return mixed


_MIXERS: Mapping[str, _Mixer] = {
    "with the next token": _with_next,
    "with both neighbours": _with_neighbours,
    "with the mean of all tokens": _with_all,
    **{f"with the mean of blocks of {size} tokens": _with_block(size) for size in (2, 4, 8, 16)},
}

_MIXED: Mapping[str, tuple[str, ...]] = {
    "query, key and value are": ("query", "key", "value"),
    "the key and the value are": ("key", "value"),
    "the value is": ("value",),
}


@fault(
    "leak-before-attention",
    Stage.PROJECT,
    title="later tokens are mixed in before attention",
    explanation=(
        "The causal mask is right, but what it hides has got through already: query, key or value of a token were "
        "averaged or convolved with tokens after it. The model sees what it should predict, and its loss in training "
        "is too good. All rows are wrong up to the end of the text or of the block."
    ),
    repair="x = F.pad(x.transpose(1, 2), (kernel - 1, 0))  # a causal convolution is padded on the left only",
    needs=[CAUSAL],
    commonness=1,
)
def leak_before_attention(spec: AttentionSpec) -> Ways:
    """``q, k, v`` of token ``i`` made from tokens ``j > i`` too: a mean with the next, of neighbours, of a block."""

    def leaking(mixer: _Mixer, roles: tuple[str, ...]) -> StageFunction:
        def mixed(run: Run) -> Run:
            return run.but(**{role: mixer(run, getattr(run, role)) for role in roles})

        return chain(project, mixed)

    for who, roles in _MIXED.items():
        for words, mixer in _MIXERS.items():
            yield f"{who} mixed {words}", {Stage.PROJECT: leaking(mixer, roles)}


def _read_across(run: Run, x: Array) -> Array:
    """``(batch, token, channel)`` that lies in memory as ``(batch, channel, token)``, read as if it didn't."""
    unless(1 in x.shape[1:], "one token or one channel is read right in any order")
    return read_as(run, run.xp.permute_dims(x, (0, 2, 1)), tuple(x.shape))


@fault(
    "tokens-split-by-view",
    Stage.PROJECT,
    title="tokens are made by a view where the axes have to be permuted",
    explanation=(
        "An image lies in memory as (batch, channel, height, width). Viewed as (batch, height * width, channel) its "
        "numbers stay where they are: what is called a token is a stretch of one channel. Every row is wrong, and the "
        "shapes are right."
    ),
    repair="tokens = x.flatten(2).transpose(1, 2)  # and back: out.transpose(1, 2).reshape(batch, channel, h, w)",
    needs=[PROJECTIONS],
    commonness=2,
)
def tokens_split_by_view(spec: AttentionSpec) -> Ways:
    """``x`` kept as ``(B, C, T)`` and viewed as ``(B, T, C)``; the output read back likewise."""

    def across(run: Run) -> Inputs:
        inputs = run.inputs
        unless(inputs.x is None, "there are no tokens: query, key and value came ready made")
        source = None if inputs.source is None else _read_across(run, inputs.source)
        return inputs.but(x=_read_across(run, inputs.x), source=source)

    def back(run: Run) -> Run:
        batch, tokens, channels = run.output.shape
        viewed = read_as(run, run.output, (batch, channels, tokens))
        return run.but(output=run.xp.permute_dims(viewed, (0, 2, 1)))

    split: dict[Stage, StageFunction] = {Stage.PROJECT: given(project, across)}
    joined: dict[Stage, StageFunction] = {Stage.OUTPUT: chain(output, back)}
    yield "the tokens", split
    yield "the tokens, and the output back into channels", {**split, **joined}
    yield "the output, back into channels", joined
