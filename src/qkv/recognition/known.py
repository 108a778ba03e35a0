"""Known: an array that an attention makes on its way, with the names of its axes. The oracle's own, and usual steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from qkv.oracle import Linear, Run
from qkv.oracle.inputs import Array
from qkv.oracle.stages import additive_bias
from qkv.vocabulary import Stage

LOG2_E = 1.4426950408889634

LOW = -1e3
"""What a score is below where a key is hidden: fills from -1e4 down, and minus infinity."""

SHOWN = "masked scores"
"""The name of scores behind a mask that doesn't hide them."""


WITHOUT_SINK = "row's sum, without its sink"
"""The name of the sum of a row's exponentials before the sink is added to it."""


@dataclass(frozen=True)
class Known:
    """One array of an attention.

    Attributes:
        name: the field's name for it: ``attn_scores``.
        stage: the stage that makes it; None for what is given.
        axes: the names of its axes.
        array: its values, in float64.
        factors: what it may be multiplied by and still be right: a query that is scaled already.
        maskable: whether entries of it may be hidden: scores, before and after the mask.
        whole: whether parts of it are no arrays of their own: any row of distances is some other row's positions.
        fixed: of the axes that it lacks, where on them it stands: one query's scores.
        along: an axis that every part of it has: one distance's biases are twice those of another.
        stretch: of axes of which it is a stretch, from where on and up to where.
    """

    name: str
    stage: Stage | None
    axes: tuple[str, ...]
    array: Array
    factors: tuple[float, ...] = (1.0,)
    maskable: bool = False
    whole: bool = False
    fixed: Mapping[str, int] = field(default_factory=dict)
    along: str = ""
    stretch: Mapping[str, tuple[int, int]] = field(default_factory=dict)


QUERIES = ("batch", "head", "query", "dim")
KEYS = ("batch", "head", "key", "dim")
VALUES = ("batch", "head", "key", "value dim")
PAIRS = ("batch", "head", "query", "key")
CONTEXT = ("batch", "head", "query", "value dim")


def knowns_of(run: Run) -> Iterator[Known]:
    """Every array that an attention which gives this run may make, in the order of the stages."""
    yield from _given(run)
    yield from _projected(run)
    yield from _scored(run)
    yield from _weighed(run)
    yield from _put_out(run)


def _given(run: Run) -> Iterator[Known]:
    inputs = run.inputs
    for name, array, token in (("x", inputs.x, "query"), ("source", inputs.source, "key")):
        if array is not None:
            yield Known(name, None, ("batch", token, "embed"), array)
    if inputs.sinks is not None:
        yield Known("sinks", None, ("head",), inputs.sinks)
    if inputs.bias is not None:
        yield Known("bias", None, PAIRS, inputs.bias)
    if inputs.parameters is None:
        return
    parameters, spec = inputs.parameters, run.spec
    for name, projection, heads, dim in (
        ("q_proj", parameters.q_proj, spec.num_heads, "dim"),
        ("k_proj", parameters.k_proj, spec.kv_heads, "dim"),
        ("v_proj", parameters.v_proj, spec.kv_heads, "value dim"),
    ):
        width = projection.weight.shape[0] // heads
        yield Known(f"{name}.weight", None, ("head", dim, "embed"), projection.weight.reshape(heads, width, -1))
        if projection.bias is not None:
            yield Known(f"{name}.bias", None, ("head", dim), projection.bias.reshape(heads, width))


def _projected(run: Run) -> Iterator[Known]:
    """Query, key and value: projected, normed, turned; before each of these, with heads shared and not."""
    spec, scale = run.spec, run.spec.scale_for(run.query.shape[-1])
    scaled = (1.0, scale, abs(scale) ** 0.5, scale * LOG2_E)
    before = run.before
    for name, axes, heads, factors in (
        ("query", QUERIES, spec.num_heads, scaled),
        ("key", KEYS, spec.kv_heads, scaled),
        ("value", VALUES, spec.kv_heads, (1.0,)),
    ):
        projected = getattr(before[Stage.HEADS], name)
        yield Known(name, Stage.PROJECT, axes, in_heads(projected, heads), factors)
        bare = _without_bias(run, name)
        if bare is not None:
            yield Known(f"{name} before its bias", Stage.PROJECT, axes, in_heads(bare, heads))
        for after, stage in ((before[Stage.POSITION], Stage.HEADS), (before[Stage.SCORES], Stage.POSITION)):
            array = getattr(after, name)
            yield Known(name, stage, axes, array[:, :: spec.num_heads // heads], factors)
            if heads != spec.num_heads:
                yield Known(name, stage, axes, array, factors)


def in_heads(array: Array, heads: int) -> Array:
    """``(batch, token, head*dim)`` as ``(batch, head, token, dim)``."""
    if array.ndim == 4:
        return array
    return array.reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _without_bias(run: Run, name: str) -> Array | None:
    inputs = run.inputs
    if inputs.parameters is None or inputs.x is None:
        return None
    projection: Linear = getattr(inputs.parameters, f"{name[0]}_proj")
    if projection.bias is None:
        return None
    source = inputs.x if name == "query" or inputs.source is None else inputs.source
    if name == "value" and inputs.value_source is not None:
        source = inputs.value_source
    return source @ projection.weight.T


def _scored(run: Run) -> Iterator[Known]:
    """Scores before and after each thing that is done with them."""
    spec, before = run.spec, run.before
    raw, scale = before[Stage.SCALE].scores, spec.scale_for(run.query.shape[-1])
    scales = tuple(dict.fromkeys((scale, scale * LOG2_E, 1.0, abs(scale) ** 0.5)))
    yield Known("attn_scores", Stage.SCORES, PAIRS, raw, scales, maskable=True)
    capped, biased = before[Stage.BIAS].scores, before[Stage.MASK].scores
    if spec.softcap is not None:
        yield Known("scores over the cap", Stage.SOFTCAP, PAIRS, before[Stage.SOFTCAP].scores / spec.softcap)
        yield Known("tanh of the scores", Stage.SOFTCAP, PAIRS, capped / spec.softcap)
        yield Known("capped scores", Stage.SOFTCAP, PAIRS, capped, (1.0, LOG2_E), maskable=True)
    added = additive_bias(run)
    if added is not None:
        along = "" if run.spec.alibi is None else "key"
        yield Known("bias", Stage.BIAS, PAIRS, np.broadcast_to(added, biased.shape), (1.0, -1.0, LOG2_E), along=along)
        yield Known("biased scores", Stage.BIAS, PAIRS, biased, (1.0, LOG2_E), maskable=True)
    masked = before[Stage.SOFTMAX].scores
    if not (np.array_equal(masked, biased) or (masked <= LOW).any()):  # a mask that hides no key for good
        yield Known(SHOWN, Stage.MASK, PAIRS, masked, (1.0, LOG2_E, 1 / scale))


def _weighed(run: Run) -> Iterator[Known]:
    """Weights, and what a softmax written out makes on its way."""
    masked = run.before[Stage.SOFTMAX].scores
    with np.errstate(all="ignore"):
        top = masked.max(axis=-1, keepdims=True)
        if run.spec.sinks and run.inputs.sinks is not None:
            yield Known("row's largest score", Stage.SOFTMAX, PAIRS[:3], top[..., 0])
            top = np.maximum(top, run.inputs.sinks.reshape(1, -1, 1, 1))
        top = np.where(np.isfinite(top), top, 0.0)
        shares = np.exp(masked - top)
        total = shares.sum(axis=-1, keepdims=True)
        sums = "row's sum"
        if run.spec.sinks and run.inputs.sinks is not None:
            yield from _beside_sinks(masked, run.inputs.sinks, top)
            with_sink = total + np.exp(run.inputs.sinks.reshape(1, -1, 1, 1) - top)
            yield Known(sums, Stage.SOFTMAX, PAIRS[:3], with_sink[..., 0])
            sums = WITHOUT_SINK
        yield Known("scores below the largest", Stage.SOFTMAX, PAIRS, masked - top)
        yield Known("exp of the scores", Stage.SOFTMAX, PAIRS, shares)
        yield Known("exp of the scores", Stage.SOFTMAX, PAIRS, np.exp(masked))
        for name, column in (("row's largest score", top), (sums, total), (sums, total * np.exp(top))):
            yield Known(name, Stage.SOFTMAX, PAIRS[:3], column[..., 0])
        yield Known("log-sum-exp", Stage.SOFTMAX, PAIRS[:3], (np.log(total) + top)[..., 0])
        yield Known("context before its division", Stage.MIX, CONTEXT, shares @ run.value)
    yield Known("attn_weights", Stage.SOFTMAX, PAIRS, run.weights)


def _beside_sinks(masked: Array, sinks: Array, top: Array) -> Iterator[Known]:
    """Scores and weights with the sink as one key more, behind the others."""
    scores = np.concatenate([masked, np.broadcast_to(sinks.reshape(1, -1, 1, 1), (*masked.shape[:3], 1))], axis=-1)
    shares = np.exp(scores - top)
    for name, stage, array in (
        ("scores and sink", Stage.MASK, scores),
        ("scores and sink below the largest", Stage.SOFTMAX, scores - top),
        ("exp of the scores and sink", Stage.SOFTMAX, shares),
        ("attn_weights and that of the sink", Stage.SOFTMAX, shares / shares.sum(axis=-1, keepdims=True)),
    ):
        yield Known(name, stage, PAIRS, array)


def _put_out(run: Run) -> Iterator[Known]:
    context = run.before[Stage.MERGE].context
    yield Known("context", Stage.MIX, CONTEXT, context)
    parameters = run.inputs.parameters
    if parameters is not None and parameters.out_proj is not None and run.spec.out_proj:
        projection = parameters.out_proj
        width = ("batch", "query", "out")
        if projection.bias is not None:
            yield Known("output before its bias", Stage.OUTPUT, width, run.context @ projection.weight.T)
        yield Known("output", Stage.OUTPUT, width, run.output)
        yield Known("out_proj.weight", None, ("out", "head*value dim"), projection.weight)
