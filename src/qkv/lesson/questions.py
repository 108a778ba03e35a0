"""What each step asks about one token, with the slips that lead to known wrong answers."""

from __future__ import annotations

import numpy as np

from qkv.lesson.numbers import DROPOUT_P, HEAD_DIM, Lesson
from qkv.lesson.question import Question, Slip, choice, number, shape, slips_of, telling
from qkv.oracle import Run
from qkv.vocabulary import Stage


def inputs(lesson: Lesson, _query: int) -> Question:
    """The shape of the inputs."""
    tokens, dim = lesson.tokens.inputs.shape
    return shape(
        (tokens, dim),
        [Slip((dim, tokens), "That is the transpose: a token is a row here, and its numbers are the columns.")],
        "First the number of rows, one for each token; then the number of columns, the numbers of one token.",
    )


def scores(lesson: Lesson, query: int) -> Question:
    """The score of one key."""
    inputs = lesson.tokens.inputs
    keys = [key for key in range(len(inputs)) if key != query]

    def ask(key: int) -> Question:
        products = inputs[query] * inputs[key]
        slips = [
            Slip(float(inputs[query] @ inputs[query]), "That is the token's dot product with itself."),
            Slip(float(inputs[key] @ inputs[key]), "That is the other token's dot product with itself."),
            Slip(float(products[0]), "That is the first product alone: add the others."),
            Slip(float((inputs[query] + inputs[key]).sum()), "Those are sums: multiply pair by pair, then add."),
        ]
        hint = "Multiply the two vectors number by number, and add the products."
        return number(lesson.simple.scores[0, query, key], slips, hint, key=key)

    return telling(keys, ask, "the score of key")


def softmax(lesson: Lesson, query: int) -> Question:
    """The weight of one key, from the shares."""
    scores = lesson.simple.scores[0, query]
    shares = np.exp(scores - scores.max())

    def ask(key: int) -> Question:
        slips = [
            *slips_of(lesson.simple, lambda run: run.weights[0, 0, query, key], "softmax-over-queries"),
            Slip(float(shares[key]), "That is the share: divide it by the sum of all shares."),
            Slip(float(scores[key] / (scores.sum() or 1)), "That divides the scores; softmax takes e^score first."),
            Slip(1 / len(scores), "That would be the mean of all tokens; a larger score gets a larger weight."),
        ]
        return number(
            lesson.simple.weights[0, query, key],
            slips,
            "Divide the share of this key by the sum of all shares.",
            key=key,
        )

    return telling(range(len(scores)), ask, "the weight of key")


def context(lesson: Lesson, query: int) -> Question:
    """One number of the context vector."""
    inputs = lesson.tokens.inputs

    def ask(channel: int) -> Question:
        slips = [
            *slips_of(lesson.simple, lambda run: run.context[0, query, channel], "weights-transposed"),
            Slip(float(inputs[:, channel].sum()), "That is the plain sum: multiply each vector by its weight first."),
            Slip(float(inputs[:, channel].mean()), "That is the mean: it would need equal weights."),
            Slip(float(inputs[query, channel]), "That is the token's own number, before it draws from the others."),
        ]
        hint = "Multiply each token's number in this column by the token's weight, and add the products."
        return number(lesson.simple.context[0, query, channel], slips, hint, channel=channel)

    return telling(range(inputs.shape[1]), ask, "number")


def axis(_lesson: Lesson, _query: int) -> Question:
    """Over which axis softmax runs."""
    return choice(
        0,
        [
            ("dim=-1, over the keys: each row sums to 1", ""),
            (
                "dim=0, over the queries: each column sums to 1",
                "The keys of one query are a row, and they share out its attention. Over dim=0 the columns would sum "
                "to 1: that is softmax-over-queries, one of the commonest faults.",
            ),
            (
                "either: the scores are symmetric",
                "The scores are symmetric here, so both run without an error. The weights are not: each row is divided "
                "by its own sum.",
            ),
        ],
    )


def product(lesson: Lesson, _query: int) -> Question:
    """The shape of ``attn_weights @ inputs``."""
    tokens, dim = lesson.tokens.inputs.shape
    return shape(
        (tokens, dim),
        [
            Slip((tokens, tokens), "That is the shape of the weights; the product has as many columns as inputs."),
            Slip((dim, tokens), "That is the transpose: the result has a row for each token."),
            Slip((dim, dim), "That would be inputs.T @ inputs: it compares numbers, not tokens."),
            Slip((dim,), "That is one context vector; there is one for each token."),
        ],
        "(a, b) @ (b, c) gives (a, c): the inner sizes have to be equal, and go.",
    )


def comparison(_lesson: Lesson, _query: int) -> Question:
    """What a single wrong row points at."""
    return choice(
        1,
        [
            ("the inputs", "All rows are made from the inputs: if they were wrong, every row could be."),
            ("that token's row of attn_weights", ""),
            ("the axis of softmax", "A wrong axis changes every row of the weights, so every context vector."),
        ],
    )


def projection(lesson: Lesson, query: int) -> Question:
    """One number of the query."""
    token, weight = lesson.tokens.inputs[query], lesson.projections["W_query"][:, :HEAD_DIM]

    def ask(channel: int) -> Question:
        slips = [
            Slip(float(lesson.trained.keys[0, query, channel]), "That is a number of the key."),
            Slip(float(token[0] * weight[0, channel]), "That is the first product alone: add the others."),
        ]
        if len(token) == HEAD_DIM:
            turned = float(weight[channel] @ token)
            slips.insert(0, Slip(turned, "That takes a row of W_query; x @ W_query takes its columns."))
        right = lesson.trained.queries[0, query, channel]
        return number(
            right, slips, "The dot product of the token's vector with this column of W_query.", channel=channel
        )

    return telling(range(HEAD_DIM), ask, "number")


def scale(lesson: Lesson, query: int) -> Question:
    """One scaled score."""

    def ask(key: int) -> Question:
        def scaled(run: Run) -> float:
            return run.before[Stage.MASK].scores[0, 0, query, key]

        slips = [
            *slips_of(lesson.trained, scaled, "scale-missing", "scale-inverted"),
            Slip(
                float(lesson.trained.scores[0, query, key]) / HEAD_DIM,
                "That divides by head_dim; divide by its square root.",
            ),
        ]
        hint = f"Divide the score by the square root of head_dim, {HEAD_DIM}: by {HEAD_DIM**0.5:.4f}."
        return number(scaled(lesson.trained.run), slips, hint, key=key)

    return telling(range(len(lesson.tokens.words)), ask, "the score of key")


def causal(lesson: Lesson, query: int) -> Question:
    """One weight under the causal mask."""

    def ask(key: int) -> Question:
        faults = ("causal-missing", "mask-after-softmax", "causal-one-ahead", "causal-strict")
        slips = slips_of(lesson.causal, lambda run: run.weights[0, 0, query, key], *faults)
        hint = (
            "The weights that are left keep their proportions: divide the one without a mask by the sum of those left."
        )
        return number(lesson.causal.weights[0, query, key], slips, hint, key=key)

    return telling(range(query + 1), ask, "the weight of key")


def dropout(lesson: Lesson, query: int) -> Question:
    """A weight that dropout keeps."""

    def ask(key: int) -> Question:
        weight = float(lesson.causal.weights[0, query, key])
        slips = [
            Slip(weight, "It also grows, so that the row's sum stays the same on average."),
            Slip(weight * DROPOUT_P, "It is divided by 1 - p, so it grows."),
            Slip(0.0, "That is a weight that was dropped; this one was kept."),
        ]
        hint = f"What is kept is divided by 1 - p, here by {1 - DROPOUT_P}."
        return number(weight / (1 - DROPOUT_P), slips, hint, key=key)

    return telling(range(query + 1), ask, "the weight of key")


def split(lesson: Lesson, _query: int) -> Question:
    """The shape of the queries in heads."""
    tokens, heads = len(lesson.tokens.words), lesson.num_heads
    return shape(
        (heads, tokens, HEAD_DIM),
        [
            Slip((tokens, heads, HEAD_DIM), "That is it after view alone; transpose then puts the heads first."),
            Slip((tokens, heads * HEAD_DIM), "That is it before the split."),
            Slip((heads, HEAD_DIM, tokens), "That is queries.transpose(-2, -1); the split keeps head_dim last."),
        ],
        "Heads first, then tokens, then the numbers of one head: (num_heads, num_tokens, head_dim).",
    )


def diagnosis(_lesson: Lesson, _query: int) -> Question:
    """What is wrong where only the first row is right."""
    return choice(
        2,
        [
            (
                "the causal mask is missing",
                "Then the first token would see the others too, and its row would be wrong.",
            ),
            ("softmax runs over the wrong axis", "Then the first row would be wrong like the others."),
            ("the scores are not divided by sqrt(head_dim)", ""),
            ("the output projection is left out", "Then every row would be wrong, the first one too."),
        ],
    )
