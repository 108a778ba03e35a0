"""Faults of the q/k norm: query and key are normalised over the wrong numbers, at the wrong place, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from qkv.faults.as_if import as_if
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import QK_NORM
from qkv.faults.replacing import apart, impossible, shared, unshared
from qkv.oracle import Array, Norm, Replacements, Run, StageFunction
from qkv.oracle.stages import heads, merge_heads, normalise, position, split_heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Over = Literal["head", "width", "heads", "tokens"]
"""Over which numbers: a head's channels, all heads' channels, one channel of all heads, or of all tokens."""


def _norms(run: Run) -> tuple[Norm, Norm]:
    parameters = run.inputs.parameters
    q_norm = parameters.q_norm if parameters and parameters.q_norm else Norm()
    k_norm = parameters.k_norm if parameters and parameters.k_norm else Norm()
    return q_norm, k_norm


def _normalised(run: Run, x: Array, norm: Norm, over: Over) -> Array:
    """``(batch, head, token, dim)`` normalised over some axes, then times its weight, whatever that is made for."""
    xp, plain = run.xp, replace(norm, weight=None, bias=None)
    count, dim = x.shape[1], x.shape[-1]
    if over == "width":
        x = split_heads(run, normalise(run, merge_heads(run, x), plain), count)
    else:
        axes = {"head": (0, 1, 2, 3), "heads": (0, 3, 2, 1), "tokens": (0, 1, 3, 2)}[over]
        x = xp.permute_dims(normalise(run, xp.permute_dims(x, axes), plain), axes)
    weight, bias = (_spread(run, numbers, count, dim) for numbers in (norm.weight, norm.bias))
    if weight is not None:
        x = x * (1 + weight if norm.plus_one else weight)
    return x if bias is None else x + bias


def _spread(run: Run, numbers: Array | None, count: int, dim: int) -> Array | None:
    """One number per channel, or per head and channel, as ``(head, 1, dim)`` or ``(dim,)``."""
    if numbers is None or numbers.shape[0] == dim:
        return numbers
    if numbers.shape[0] != count * dim:
        raise impossible(f"the norm has {numbers.shape[0]} numbers for {count} heads of {dim} channels")
    return run.xp.reshape(numbers, (count, 1, dim))


def _normed(query: Over | None, key: Over | None, change: Callable[[Norm], Norm] = lambda norm: norm) -> StageFunction:
    """The ``heads`` stage with query and key normalised over other axes; None for not at all."""

    def replaced(run: Run) -> Run:
        alone = apart(run)
        q_norm, k_norm = map(change, _norms(run))
        new_query = alone.query if query is None else _normalised(run, alone.query, q_norm, query)
        new_key = alone.key if key is None else _normalised(run, alone.key, k_norm, key)
        return shared(alone.but(query=new_query, key=new_key))

    return replaced


@fault(
    "qk-norm-missing",
    Stage.PROJECT,
    title="query or key is not normalised",
    explanation=(
        "The norm keeps every query and key at the same length, so that scores depend on directions. Without it long "
        "vectors dominate and the weights come out too sharp or too flat. Every row with more than one visible key is "
        "wrong; rows with a single one are right."
    ),
    repair="query, key = self.q_norm(query), self.k_norm(key)",
    needs=[QK_NORM],
)
def qk_norm_missing(spec: AttentionSpec) -> Ways:
    """``q_i . k_j`` of the raw query, key, or both."""
    if spec.qk_norm is not None:
        yield "neither is", {Stage.HEADS: _normed(None, None)}
        yield "the query is not", {Stage.HEADS: _normed(None, spec.qk_norm)}
        yield "the key is not", {Stage.HEADS: _normed(spec.qk_norm, None)}


@fault(
    "qk-norm-axis",
    Stage.PROJECT,
    title="query and key are normalised over the wrong axis",
    explanation=(
        "A norm per head makes each head's query the same length; a norm over the whole width lets one head be long "
        "where another is short. Which one is meant decides where it stands: after or before the split into heads. "
        "Over heads or tokens it mixes what should stay apart. Every row with more than one visible key is wrong."
    ),
    repair="query = self.q_norm(query.view(batch, length, num_heads, head_dim))  # per head: after the split",
    needs=[QK_NORM],
)
def qk_norm_axis(spec: AttentionSpec) -> Ways:
    """``q / rms(q)`` with the mean over ``H*d`` for ``d``, or the other way; over the heads; over the tokens."""
    overs: dict[Over, str] = {
        "head": "over each head by itself",
        "width": "over all heads together",
        "heads": "over the heads, channel by channel",
        "tokens": "over the tokens, channel by channel",
    }
    for over, note in overs.items():
        if spec.qk_norm not in (None, over):
            yield note, {Stage.HEADS: _normed(over, over)}


@fault(
    "qk-norm-after-rope",
    Stage.POSITION,
    title="query and key are normalised after rope, not before",
    explanation=(
        "Rope turns pairs of channels and does not change a length, so the norm itself commutes with it. The norm's "
        "weight does not: it stretches single channels, and must do so before they are turned into each other. Every "
        "row with more than one visible key is wrong."
    ),
    repair="query = apply_rope(self.q_norm(query))  # not q_norm(apply_rope(query))",
    needs=[QK_NORM],
)
def qk_norm_after_rope(spec: AttentionSpec) -> Ways:
    """``norm(R_i q_i)`` for ``R_i norm(q_i)``."""
    over = spec.qk_norm
    if over is None or spec.rope is None:
        return

    def late(run: Run) -> Run:
        turned = position(run)
        q_norm, k_norm = _norms(run)
        query = _normalised(run, turned.query, q_norm, over)
        key = _normalised(run, unshared(run, turned.key), k_norm, over)
        return shared(turned.but(query=query, key=key, value=unshared(run, turned.value)))

    yield {Stage.HEADS: as_if(heads, qk_norm=None), Stage.POSITION: late}


def _other(change: Callable[[Norm], Norm]) -> Replacements:
    """The ``heads`` stage with another norm in the right place; ``change`` gives back the very norm that it leaves."""

    def replaced(run: Run) -> Run:
        over = run.spec.qk_norm
        q_norm, k_norm = _norms(run)
        if over is None or (change(q_norm) is q_norm and change(k_norm) is k_norm):
            raise impossible("this is the right norm")
        return _normed(over, over, change)(run)

    return {Stage.HEADS: replaced}


def _swapped(run: Run) -> Run:
    over = run.spec.qk_norm
    q_norm, k_norm = _norms(run)
    if over is None or q_norm.weight is None or k_norm.weight is None or q_norm.weight.shape != k_norm.weight.shape:
        raise impossible("the norms' weights can't change places")
    alone = apart(run)
    query = _normalised(run, alone.query, k_norm, over)
    return shared(alone.but(query=query, key=_normalised(run, alone.key, q_norm, over)))


@fault(
    "qk-norm-other-form",
    Stage.PROJECT,
    title="the q/k norm is of another form",
    explanation=(
        "Norms differ in what they divide by (root mean square, deviation from the mean, length), in whether a weight "
        "follows, and whether that weight or one plus it multiplies. Another form scales queries and keys by another "
        "number, channel by channel or as a whole. Every row with more than one visible key is wrong."
    ),
    repair="query = query * torch.rsqrt(query.pow(2).mean(-1, keepdim=True) + eps) * weight  # RMS norm",
    needs=[QK_NORM],
    commonness=1,
)
def qk_norm_other_form(spec: AttentionSpec) -> Ways:
    """RMS, layer and l2 norm for each other; without the weight; ``1 + weight`` for ``weight``; q's weight on k."""
    yield "an RMS norm", _other(lambda norm: norm if norm.kind == "rms" else replace(norm, kind="rms"))
    yield "a layer norm", _other(lambda norm: norm if norm.kind == "layer" else replace(norm, kind="layer"))
    yield "divided by the length (l2)", _other(lambda norm: norm if norm.kind == "l2" else replace(norm, kind="l2"))
    yield "without its weight", _other(lambda norm: norm if norm.weight is None else replace(norm, weight=None))
    yield (
        "weight and 1 + weight are mixed up",
        _other(lambda norm: norm if norm.weight is None else replace(norm, plus_one=not norm.plus_one)),
    )
    yield "the weights of query and key are swapped", {Stage.HEADS: _swapped}
