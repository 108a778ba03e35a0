"""Faults of softmax: over the wrong axis, left out, done twice, or with another sum below the line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from qkv.faults.as_if import EMPTY_ROWS, as_if, quietly, unless
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by
from qkv.faults.needs import EMPTY_ROW
from qkv.oracle import Replacements, Run
from qkv.oracle.stages import allowed, empty_row_weight, mix, output, softmax, weights_from
from qkv.spec import AttentionSpec
from qkv.vocabulary import EmptyRow, Stage


@fault(
    "empty-row",
    Stage.SOFTMAX,
    title="a query without any key gets something else than it should",
    explanation=(
        "Where every key of a query is hidden, softmax divides zero by zero. Minus infinity gives NaN, a large "
        "negative fill the mean of all values (hidden ones too), a guard zeros. Only the rows without any key "
        "differ; all others are right."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1).masked_fill(~may_attend.any(-1, keepdim=True), 0.0)",
    needs=[EMPTY_ROW],
    commonness=3,
)
def empty_row(spec: AttentionSpec) -> Ways:
    """NaN, zeros or ``mean_j v_j`` where the spec says another of them; or softmax as if nothing were hidden."""
    for rule, words in EMPTY_ROWS.items():
        if rule != spec.empty_row:
            yield f"such rows give {words}", {Stage.SOFTMAX: as_if(softmax, empty_row=rule)}

    def unmasked(run: Run) -> Run:
        may_attend = allowed(run)
        empty = ~run.xp.any(may_attend, axis=-1, keepdims=True)
        return hidden_by(run, may_attend | empty).but(may_attend=may_attend)

    yield "such rows see every key, as if none were hidden", {Stage.MASK: unmasked}


# --- the wrong axis ---


def _shares(run: Run, axis: int | tuple[int, ...], rule: EmptyRow) -> Run:
    """Softmax over other axes. Where everything along them is hidden: NaN, even weights or zeros."""
    xp = run.xp
    top = xp.max(run.scores, axis=axis, keepdims=True)
    shares = xp.exp(run.scores - xp.where(xp.isfinite(top), top, xp.zeros_like(top)))
    total = xp.sum(shares, axis=axis, keepdims=True)
    axes = (axis,) if isinstance(axis, int) else axis
    instead = {"nan": math.nan, "zero": 0.0, "uniform": 1 / math.prod(run.scores.shape[place] for place in axes)}
    weights = shares / xp.where(total == 0, xp.ones_like(total), total)
    return run.but(weights=xp.where(total == 0, run.array(instead[rule]), weights))


def _top_over(top_axis: int, sum_axis: int | tuple[int, ...]) -> Replacements:
    """The largest score taken off along one axis, and the sum below the line along another."""

    def apart(run: Run) -> Run:
        xp = run.xp
        top = xp.max(run.scores, axis=top_axis, keepdims=True)
        shares = xp.exp(run.scores - xp.where(xp.isfinite(top), top, xp.zeros_like(top)))
        total = xp.sum(shares, axis=sum_axis, keepdims=True)
        weights = shares / xp.where(total == 0, xp.ones_like(total), total)
        return run.but(weights=xp.where(total == 0, empty_row_weight(run), weights))

    return {Stage.SOFTMAX: quietly(apart)}


def _over(axis: int | tuple[int, ...], note: str) -> Ways:
    rules: dict[EmptyRow, str] = {
        "nan": "",  # as any softmax, whether or not all of them are hidden somewhere
        "uniform": "; even weights where all of them are hidden",
        "zero": "; zeros where all of them are hidden",
    }
    for rule, words in rules.items():
        yield f"{note}{words}", {Stage.SOFTMAX: _axis_stage(axis, rule)}


def _axis_stage(axis: int | tuple[int, ...], rule: EmptyRow) -> Callable[[Run], Run]:
    return lambda run: _shares(run, axis, rule)


@fault(
    "softmax-over-queries",
    Stage.SOFTMAX,
    title="softmax runs over the queries instead of the keys",
    explanation=(
        "A query shares its attention out among the keys, so each row of weights must sum to 1. Here each column "
        "does: every key shares itself out among the queries. Every row is wrong, the first one too."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)",
    commonness=3,
)
def softmax_over_queries(spec: AttentionSpec) -> Ways:
    """``w_ij = exp(s_ij) / sum_i exp(s_ij)``, or over queries and keys together."""
    yield from _over(-2, "over the queries")
    yield from _over((-2, -1), "over queries and keys together")
    yield "the largest score is taken over the queries, the sum over the keys", _top_over(-2, -1)
    yield "the largest score is taken over the keys, the sum over the queries", _top_over(-1, -2)
    yield "the largest score is taken over the keys, the sum over both", _top_over(-1, (-2, -1))
    if spec.sinks:
        yield "over the queries, the sink among them", {Stage.SOFTMAX: _column_with_sink}


def _column_with_sink(run: Run) -> Run:
    """The sink as one more query, whose row is dropped again."""
    xp, sinks = run.xp, run.inputs.sinks
    unless(sinks is None, "there is no sink")
    sinks = xp.reshape(sinks, (1, -1, 1, 1))
    top = xp.maximum(xp.max(run.scores, axis=-2, keepdims=True), sinks)
    shares = xp.exp(run.scores - top)
    return run.but(weights=shares / (xp.sum(shares, axis=-2, keepdims=True) + xp.exp(sinks - top)))


@fault(
    "softmax-over-heads-or-batch",
    Stage.SOFTMAX,
    title="softmax runs over the heads or over the batch",
    explanation=(
        "In four axes dim=1 is the head and dim=0 the batch. Softmax over them makes heads or sequences share "
        "weight with each other, and rows sum to anything. Where that axis has one entry all weights are 1. Every "
        "row is wrong."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)  # the keys are the last axis",
    commonness=2,
)
def softmax_over_heads_or_batch(spec: AttentionSpec) -> Ways:
    """``w = exp(s) / sum exp(s)`` over axis 1 or axis 0."""
    yield from _over(1, "over the heads")
    yield from _over(0, "over the batch")
    yield from _over((0, 1), "over batch and heads together")
    for axis, words in ((1, "heads"), (0, "batch")):
        yield f"the largest score is taken over the {words}, the sum over the keys", _top_over(axis, -1)
        yield f"the largest score is taken over the keys, the sum over the {words}", _top_over(-1, axis)


# --- left out, or done otherwise ---

Shares = Literal["raw", "over the sum", "exp", "sigmoid", "relu"]


def _in_place_of_softmax(kind: Shares, hidden: float = 0.0) -> Callable[[Run], Run]:
    def shared(run: Run) -> Run:
        xp = run.xp
        visible = run.scores != -math.inf
        scores = xp.where(visible, run.scores, xp.zeros_like(run.scores))
        match kind:
            case "exp":
                scores = xp.exp(scores)
            case "sigmoid":
                scores = 1 / (1 + xp.exp(-scores))
            case "relu":
                scores = xp.where(scores > 0, scores, xp.zeros_like(scores))
        weights = xp.where(visible, scores, run.array(hidden))
        if kind == "over the sum":
            weights = weights / xp.sum(weights, axis=-1, keepdims=True)
        return run.but(weights=weights)

    return quietly(shared)


@fault(
    "softmax-missing",
    Stage.SOFTMAX,
    title="the weights are no softmax",
    explanation=(
        "Scores become weights that are positive and sum to 1 through softmax. Here they are used as they are, only "
        "divided by their sum, or only exponentiated, so rows sum to anything and weights may be negative. Every "
        "row is wrong, the first one too (divided by their sum, rows with a single visible key are right)."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)",
    commonness=2,
)
def softmax_missing(spec: AttentionSpec) -> Ways:
    """``w = s``; ``s / sum s``; ``exp(s)`` without the sum; ``sigmoid(s)``."""
    yield "the scores are the weights", {Stage.SOFTMAX: _in_place_of_softmax("raw")}
    yield "divided by their sum", {Stage.SOFTMAX: _in_place_of_softmax("over the sum")}
    yield "exp without the sum", {Stage.SOFTMAX: _in_place_of_softmax("exp")}
    yield "sigmoid", {Stage.SOFTMAX: _in_place_of_softmax("sigmoid")}
    yield "relu", {Stage.SOFTMAX: _in_place_of_softmax("relu")}
    kept = {Stage.SOFTMAX: _in_place_of_softmax("raw", -1e9)}
    yield "the scores are the weights, hidden ones -1e9", kept
    infinite: Replacements = {
        Stage.SOFTMAX: _in_place_of_softmax("raw", -math.inf),
        Stage.MIX: quietly(mix),
        Stage.OUTPUT: quietly(output),
    }
    yield "the scores are the weights, hidden ones minus infinity", infinite


@fault(
    "softmax-twice",
    Stage.SOFTMAX,
    title="softmax is done twice",
    explanation=(
        "The weights go through softmax again. They lie between 0 and 1, so the second one makes them nearly even, "
        "and hidden keys, whose weight was 0, get exp(0) = 1 before the sum. Every row that sees more than one key "
        "is wrong, and every row with hidden keys."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)  # once",
    commonness=1,
)
def softmax_twice(spec: AttentionSpec) -> Ways:
    """``softmax(softmax(s))``, without and with hiding again in between."""

    def again(masked: bool) -> Replacements:
        def twice(run: Run) -> Run:
            weights = softmax(run).weights
            if masked:
                weights = run.xp.where(run.scores == -math.inf, run.array(-math.inf), weights)
            return run.but(weights=weights_from(run.but(spec=run.spec.but(sinks=False)), weights))

        return {Stage.SOFTMAX: quietly(twice)}

    yield "", again(masked=False)
    yield "the mask is applied before both", again(masked=True)


def _to_another_base(factor: float) -> Replacements:
    def other(run: Run) -> Run:
        sinks = run.inputs.sinks
        seen = run.but(inputs=run.inputs.but(sinks=None if sinks is None else sinks * factor))
        return run.but(weights=weights_from(seen, run.scores * factor))

    return {Stage.SOFTMAX: other}


@fault(
    "softmax-base",
    Stage.SOFTMAX,
    title="softmax uses another base than e",
    explanation=(
        "Kernels compute 2^x, which is faster, and multiply the scores by 1/ln(2) = 1.4427 so that it comes out as "
        "e^x. With only one of the two steps the weights are too flat or too sharp. Rows with a single visible key "
        "are right (except with sinks)."
    ),
    repair="attn_weights = torch.exp2(attn_scores * 1.4426950408889634)  # 1/ln(2), with exp2 only",
    commonness=1,
)
def softmax_base(spec: AttentionSpec) -> Ways:
    """``2^s / sum 2^s``, or ``e^(s / ln 2)``."""
    yield "2^s for e^s", _to_another_base(math.log(2))
    yield "the factor 1/ln(2) without exp2", _to_another_base(1 / math.log(2))


@fault(
    "softmax-off-by-one",
    Stage.SOFTMAX,
    title="a 1 is added to the sum of softmax",
    explanation=(
        "With exp(s) / (1 + sum exp(s)) a query can attend to nothing, as if there were one more key with score 0 "
        "and value 0. Every row sums to less than 1, the first one too."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)",
    commonness=1,
)
def softmax_off_by_one(spec: AttentionSpec) -> Ways:
    """``exp(s) / (1 + sum exp(s))``; or with the 1 added after the largest score was taken off."""

    def zero_sinks(run: Run) -> Run:
        none = run.array([0.0] * run.spec.num_heads)
        seen = run.but(spec=run.spec.but(sinks=True), inputs=run.inputs.but(sinks=none))
        return run.but(weights=weights_from(seen, run.scores))

    def after_the_maximum(run: Run) -> Run:
        weights = weights_from(run.but(spec=run.spec.but(sinks=False)), run.scores)
        top = run.xp.max(weights, axis=-1, keepdims=True)  # 1 / sum, since the largest share is 1
        return run.but(weights=weights / (1 + top))

    yield "exp(s) / (1 + sum)", {Stage.SOFTMAX: zero_sinks}
    yield "the 1 is added after the largest score was taken off", {Stage.SOFTMAX: quietly(after_the_maximum)}
