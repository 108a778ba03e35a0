"""Faults of the scale: the scores are multiplied by the wrong number, or at the wrong place."""

from __future__ import annotations

import math
from collections.abc import Callable

from qkv.errors import ShapeError
from qkv.faults.as_if import unless
from qkv.faults.constants import PLAIN_NUMBERS, named, scale_names
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import SEVERAL_HEADS
from qkv.oracle import Inputs, Replacements, Run
from qkv.oracle.stages import softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _head_dim(run: Run) -> int:
    return int(run.query.shape[-1])


def _right(run: Run) -> float:
    return run.spec.scale_for(_head_dim(run))


def _scaled(factor: Callable[[Run], float]) -> Replacements:
    return {Stage.SCALE: lambda run: run.but(scores=run.scores * factor(run))}


def _kv_width(run: Run) -> int:
    unless(run.spec.group_size == 1, "that is the width of all heads")
    return run.spec.kv_heads * _head_dim(run)


def _embed_dim(run: Run) -> int:
    if run.inputs.x is not None:
        return int(run.inputs.x.shape[-1])
    if run.spec.embed_dim is None:
        raise ShapeError("the width of the tokens is not known: the call gave query, key and value")
    return run.spec.embed_dim


@fault(
    "scale-missing",
    Stage.SCALE,
    title="the scores are not scaled",
    explanation=(
        "The dot product of two vectors of head_dim numbers grows with head_dim, and softmax turns large scores "
        "into weights near 0 and 1: every token listens to hardly more than one other. Dividing by sqrt(head_dim) "
        "keeps the scores near 1. Rows with a single visible key are right, all others are too sharp."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) / head_dim**0.5",
    commonness=3,
)
def scale_missing(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T)``."""
    if spec.scale != 1:
        yield {Stage.SCALE: lambda run: run}


@fault(
    "scale-by-model-width",
    Stage.SCALE,
    title="the scale uses the width of the model, not of one head",
    explanation=(
        "Each head's scores are sums over head_dim products, so 1/sqrt(head_dim) is what evens them out. With the "
        "width of all heads together they come out sqrt(num_heads) times too small, and the weights too flat. Rows "
        "with a single visible key are right."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) / head_dim**0.5  # not embed_dim**0.5",
    needs=[SEVERAL_HEADS],
    commonness=3,
)
def scale_by_model_width(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T / sqrt(num_heads * head_dim))``, or by ``embed_dim`` where that is another number."""
    yield (
        "the scale is 1/sqrt(num_heads * head_dim)",
        _scaled(lambda run: 1 / math.sqrt(run.spec.num_heads * _head_dim(run))),
    )
    yield "the scale is 1/sqrt(embed_dim)", _scaled(lambda run: 1 / math.sqrt(_embed_dim(run)))


@fault(
    "scale-inverted",
    Stage.SCALE,
    title="the scores are multiplied by sqrt(head_dim) instead of divided",
    explanation=(
        "The scale is there to make the scores smaller. Multiplying by sqrt(head_dim) makes them head_dim times too "
        "large, and softmax then gives nearly all weight to one key. Rows with a single visible key are right."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) / head_dim**0.5  # or * head_dim**-0.5",
    commonness=2,
)
def scale_inverted(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T * sqrt(head_dim))``; with a scale of its own, ``q k^T / scale``."""
    if spec.scale is None:
        yield _scaled(lambda run: math.sqrt(_head_dim(run)))
    elif spec.scale not in (0, 1):
        yield "the scores are divided by the scale", _scaled(lambda run: 1 / _right(run))
        yield "the scale is sqrt(head_dim)", _scaled(lambda run: math.sqrt(_head_dim(run)))


@fault(
    "scale-twice",
    Stage.SCALE,
    title="the scores are scaled twice",
    explanation=(
        "The scale is applied to the query (or inside a fused kernel) and once more to the scores, so they are "
        "divided by head_dim instead of its root. The weights come out too flat; rows with a single visible key are "
        "right."
    ),
    repair="out = F.scaled_dot_product_attention(q, k, v)  # it scales by itself: don't divide q before",
    commonness=2,
)
def scale_twice(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T / head_dim)``; with a scale of its own, times that twice, or times that and the usual one."""
    if spec.scale != 1:
        yield "", _scaled(lambda run: _right(run) ** 2)
    if spec.scale is not None:
        yield "the usual 1/sqrt(head_dim) comes on top", _scaled(lambda run: _right(run) * _head_dim(run) ** -0.5)
        yield "the scale is 1/head_dim", _scaled(lambda run: 1 / _head_dim(run))


@fault(
    "scale-zero",
    Stage.SCALE,
    title="the scale is zero",
    explanation=(
        "Whole-number division (1 // sqrt(head_dim)) or an unset default makes the scale 0. All scores are then "
        "equal and every query takes the plain mean of the keys it may see, whatever they hold. Rows with a single "
        "visible key are right."
    ),
    repair="scale = 1 / head_dim**0.5  # one slash, and a float",
    commonness=1,
)
def scale_zero(spec: AttentionSpec) -> Ways:
    """``softmax(0 * q k^T)``: even weights on everything visible, up to an additive bias."""
    if spec.scale != 0:
        yield _scaled(lambda run: 0.0)


@fault(
    "scale-after-softmax",
    Stage.SCALE,
    title="the weights are scaled instead of the scores",
    explanation=(
        "Softmax must see the scaled scores. Scaling its result leaves the weights as sharp as unscaled scores make "
        "them, and they no longer sum to 1: every row of the context is too small, the first one too."
    ),
    repair="attn_weights = torch.softmax(attn_scores / head_dim**0.5, dim=-1)",
    commonness=2,
)
def scale_after_softmax(spec: AttentionSpec) -> Ways:
    """``scale * softmax(q k^T)``, or scaled both before and after."""
    if spec.scale == 1:
        return

    def scaled_weights(run: Run) -> Run:
        done = softmax(run)
        return done.but(weights=done.weights * _right(run))

    yield "", {Stage.SCALE: lambda run: run, Stage.SOFTMAX: scaled_weights}
    yield "scaled before softmax and again after it", {Stage.SOFTMAX: scaled_weights}


@fault(
    "scale-ignored",
    Stage.SCALE,
    title="the given scale is dropped and the usual one used",
    explanation=(
        "This attention has a scale of its own, and the code path taken divides by sqrt(head_dim) all the same. The "
        "weights are too flat or too sharp by one constant; rows with a single visible key are right."
    ),
    repair="out = F.scaled_dot_product_attention(q, k, v, scale=scale)",
    commonness=2,
)
def scale_ignored(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T / sqrt(head_dim))`` where the spec names another scale."""
    if spec.scale is not None:
        yield _scaled(lambda run: _head_dim(run) ** -0.5)


_OTHER_CONSTANTS: dict[str, Callable[[Run], float]] = {
    "1/sqrt(value_dim)": lambda run: run.value.shape[-1] ** -0.5,
    "1/sqrt(key_len)": lambda run: run.inputs.lengths[1] ** -0.5,
    "1/sqrt(query_len)": lambda run: run.inputs.lengths[0] ** -0.5,
    "1/sqrt(num_heads)": lambda run: run.spec.num_heads**-0.5,
    "head_dim^-1/4": lambda run: _head_dim(run) ** -0.25,
    "1/sqrt(num_kv_heads * head_dim)": lambda run: _kv_width(run) ** -0.5,
    "1/sqrt(head_dim // 2)": lambda run: max(_head_dim(run) // 2, 1) ** -0.5,
    "1/sqrt(2 * head_dim)": lambda run: (2 * _head_dim(run)) ** -0.5,
    "1/sqrt(head_dim / num_heads)": lambda run: (_head_dim(run) / run.spec.num_heads) ** -0.5,
    "1/sqrt(head_dim + 1)": lambda run: (_head_dim(run) + 1) ** -0.5,
    "1/key_len": lambda run: 1 / run.inputs.lengths[1],
    "1/num_heads": lambda run: 1 / run.spec.num_heads,
    "1/embed_dim": lambda run: 1 / _embed_dim(run),
    "minus the right one": lambda run: -_right(run),
}


def _scale_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    return f"the scale is {named(value, scale_names(spec, inputs))}"


def _factor_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    roots = {"sqrt(2)": 2.0**0.5, "1/sqrt(2)": 0.5**0.5}
    return f"the scale is the right one times {named(value, {**PLAIN_NUMBERS, **roots})}"


@fault(
    "scale-other-constant",
    Stage.SCALE,
    title="the scale is another constant",
    explanation=(
        "The scores are multiplied by one number, but not by the right one: it is taken from another size or "
        "another model. The weights are too flat where it is too small and too sharp where it is too large; rows "
        "with a single visible key are right."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5",
    families=[
        Family(
            lambda factor: _scaled(lambda run: factor),
            (0.3, 0.1, 1.0, 0.03, 3.0, 0.01, 10.0, 0.001, 100.0, -0.1, -1.0, -0.01, -10.0, -0.001, -100.0),
            _scale_note,
        ),
        Family(
            lambda factor: _scaled(lambda run: factor * _right(run)),
            (0.5, 2.0, 0.1, 10.0, 0.01, 100.0, -0.5, -2.0, -10.0),
            _factor_note,
        ),
    ],
    commonness=2,
)
def scale_other_constant(spec: AttentionSpec) -> Ways:
    """``softmax(f * q k^T)`` with a number ``f`` that another size gives."""
    for name, factor in _OTHER_CONSTANTS.items():
        yield f"the scale is {name}", _scaled(factor)
