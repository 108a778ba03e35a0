"""The matrices of the lesson by name, as its templates show them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from qkv.lesson.matrix import Matrix
from qkv.lesson.numbers import HEAD_DIM, Lesson
from qkv.oracle import Array
from qkv.vocabulary import Stage


def figures(lesson: Lesson) -> dict[str, Matrix]:
    """Every matrix of the lesson outside the heads."""
    simple, trained, causal = lesson.simple, lesson.trained, lesson.causal
    hidden = ~causal.run.may_attend[0, 0]
    return {
        "inputs": Matrix("inputs", lesson.tokens.inputs),
        "scores": _pairs("attn_scores", simple.scores[0]),
        "weights": _weights("attn_weights", simple.weights[0]),
        "over_queries": _weights("attn_weights", simple.under("softmax-over-queries").weights[0, 0], sums="columns"),
        "context": Matrix("all_context", simple.context[0]),
        **{name: Matrix(name, lesson.projections[name][:, :HEAD_DIM], rows="numbers") for name in _LEARNED},
        "query": Matrix("queries", trained.queries[0]),
        "key": Matrix("keys", trained.keys[0]),
        "value": Matrix("values", trained.values[0]),
        "trained_scores": _pairs("attn_scores", trained.scores[0]),
        "scaled": _pairs("scaled", trained.scaled[0]),
        "trained_weights": _weights("attn_weights", trained.weights[0]),
        "trained_context": Matrix("context", trained.context[0]),
        "masked": Matrix("masked", causal.masked[0], columns="tokens", hidden=hidden),
        "causal_weights": _weights("attn_weights", causal.weights[0], hidden),
        "causal_context": Matrix("context", causal.context[0]),
        "after_softmax": _weights("attn_weights", causal.under("mask-after-softmax").weights[0, 0], hidden),
        "dropped": _weights("attn_weights", lesson.dropped, hidden),
    }


_LEARNED = ("W_query", "W_key", "W_value")


def head_figures(lesson: Lesson) -> dict[str, Matrix]:
    """The matrices of the last step that all heads share."""
    attention, heads = lesson.multi_head, lesson.num_heads
    queries = np.concatenate(list(attention.queries), axis=-1)
    return {
        "queries": Matrix("inputs @ W_query", queries, heads=heads),
        "context": Matrix("context", attention.run.before[Stage.OUTPUT].context[0], heads=heads),
        "W_out": Matrix("W_out", lesson.projections["W_out"], rows="numbers"),
        "output": Matrix("output", attention.run.output[0]),
    }


def figures_by_head(lesson: Lesson) -> list[dict[str, Matrix]]:
    """The matrices of each head."""
    attention = lesson.multi_head
    hidden = ~attention.run.may_attend[0, 0]
    return [
        {
            "queries": Matrix(f"queries[{head}]", attention.queries[head]),
            "weights": _weights(f"attn_weights[{head}]", attention.weights[head], hidden),
            "context": Matrix(f"context[{head}]", attention.context[head]),
        }
        for head in range(lesson.num_heads)
    ]


def _pairs(name: str, array: Array) -> Matrix:
    return Matrix(name, array, columns="tokens")


def _weights(name: str, array: Array, hidden: Array | None = None, sums: Literal["rows", "columns"] = "rows") -> Matrix:
    return Matrix(name, array, columns="tokens", weights=True, sums=sums, hidden=hidden)
