"""Faults of the scale: the scores are multiplied by the wrong number, or at the wrong place."""

from __future__ import annotations

import math

from qkv.faults.constants import named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import SEVERAL_HEADS
from qkv.oracle import Inputs, Replacements, Run
from qkv.oracle.stages import scale
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _head_dim(run: Run) -> int:
    return int(run.query.shape[-1])


def _scaled_by(factor: float) -> Replacements:
    return {Stage.SCALE: lambda run: run.but(scores=run.scores * factor)}


@fault(
    "scale-missing",
    Stage.SCALE,
    title="the scores are not scaled",
    explanation=(
        "The dot product of two vectors of head_dim numbers grows with head_dim, and softmax turns large scores into "
        "weights near 0 and 1: every token listens to hardly more than one other. Dividing by sqrt(head_dim) keeps the "
        "scores near 1. Rows with a single visible key are right, all others are too sharp."
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
        "Each head's scores are sums over head_dim products, so 1/sqrt(head_dim) is what evens them out. With the width "
        "of all heads together they come out sqrt(num_heads) times too small, and the weights too flat."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) / head_dim**0.5  # not embed_dim**0.5",
    needs=[SEVERAL_HEADS],
    commonness=3,
)
def scale_by_model_width(spec: AttentionSpec) -> Ways:
    """``softmax(q k^T / sqrt(num_heads * head_dim))``, or by ``embed_dim`` where that is another number."""

    def by_heads(run: Run) -> Run:
        return run.but(scores=run.scores / math.sqrt(spec.num_heads * _head_dim(run)))

    yield "the scale is 1/sqrt(num_heads * head_dim)", {Stage.SCALE: by_heads}
