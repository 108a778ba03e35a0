"""Every number of the lesson is that of a computation of our own; so is every answer, and no slip passes for one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from qkv.lesson.numbers import DROPOUT_P, HEAD_DIM, Lesson
from qkv.lesson.question import Question
from qkv.lesson.steps import STEPS
from qkv.lesson.tokens import Tokens, default_tokens, tokens_of
from qkv.oracle import Array

ASK = {step.id: step.ask for step in STEPS}


def softmax(scores: list[float]) -> list[float]:
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


def attention(query: Array, key: Array, value: Array, scale: float, *, causal: bool) -> tuple[Array, Array]:
    """Weights and context vectors, row by row."""
    rows = []
    for at, asking in enumerate(query):
        seen = at + 1 if causal else len(key)
        weights = softmax([float(asking @ one) * scale for one in key[:seen]])
        rows.append(weights + [0.0] * (len(key) - seen))
    weights = np.array(rows)
    return weights, np.array([sum(weight * one for weight, one in zip(row, value, strict=True)) for row in weights])


def lesson_of(num_tokens: int, dim: int, num_heads: int, seed: int) -> Lesson:
    inputs = np.random.default_rng(seed).normal(size=(num_tokens, dim)).round(1)
    return Lesson(Tokens(tuple("abcdefghijkl"[:num_tokens]), inputs, ""), num_heads, seed)


sizes = st.builds(
    lesson_of, st.integers(2, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000)
)  # fmt: skip


@given(sizes)
@settings(max_examples=30)
def test_one_attention_builds_upon_the_other(lesson: Lesson) -> None:
    x = lesson.tokens.inputs
    weights, context = attention(x, x, x, 1.0, causal=False)
    np.testing.assert_allclose(lesson.simple.weights[0], weights, atol=1e-12)
    np.testing.assert_allclose(lesson.simple.context[0], context, atol=1e-12)
    heads = []
    for head in range(lesson.num_heads):
        columns = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        query, key, value = (x @ lesson.projections[f"W_{name}"][:, columns] for name in ("query", "key", "value"))
        weights, context = attention(query, key, value, HEAD_DIM**-0.5, causal=True)
        np.testing.assert_allclose(lesson.multi_head.weights[head], weights, atol=1e-12)
        heads.append(context)
        if head == 0:
            np.testing.assert_allclose(lesson.causal.weights[0], weights, atol=1e-12)
            weights, context = attention(query, key, value, HEAD_DIM**-0.5, causal=False)
            np.testing.assert_allclose(lesson.trained.weights[0], weights, atol=1e-12)
            np.testing.assert_allclose(lesson.trained.context[0], context, atol=1e-12)
    output = np.concatenate(heads, axis=1) @ lesson.projections["W_out"]
    np.testing.assert_allclose(lesson.multi_head.run.output[0], output, atol=1e-12)


@given(sizes)
@settings(max_examples=30)
def test_what_is_asked_has_the_right_answer(lesson: Lesson) -> None:
    x, tokens, dim = lesson.tokens.inputs, *lesson.tokens.inputs.shape
    weights, context = attention(x, x, x, 1.0, causal=False)
    query, key, value = (x @ lesson.projections[f"W_{name}"][:, :HEAD_DIM] for name in ("query", "key", "value"))
    causal, _ = attention(query, key, value, HEAD_DIM**-0.5, causal=True)
    for at in range(tokens):
        asked = {name: ask(lesson, at) for name, ask in ASK.items()}
        expected = {
            "inputs": (tokens, dim),
            "scores": float(sum(a * b for a, b in zip(x[at], x[asked["scores"].at["key"]], strict=True))),
            "softmax": weights[at, asked["softmax"].at["key"]],
            "context": context[at, asked["context"].at["channel"]],
            "shape": context.shape,
            "projections": query[at, asked["projections"].at["channel"]],
            "scale": float(query[at] @ key[asked["scale"].at["key"]]) / math.sqrt(HEAD_DIM),
            "causal": causal[at, asked["causal"].at["key"]],
            "dropout": causal[at, asked["dropout"].at["key"]] / (1 - DROPOUT_P),
            "heads": (lesson.num_heads, tokens, HEAD_DIM),
        }
        for name, answer in expected.items():
            assert asked[name].answer == pytest.approx(answer, abs=1e-9), name
        for question in asked.values():
            assert_slips_are_wrong(question)


def assert_slips_are_wrong(question: Question) -> None:
    for slip in question.slips:
        assert slip.hint
        if question.kind == "number":
            assert isinstance(slip.answer, float)
            assert isinstance(question.answer, float)
            assert abs(slip.answer - question.answer) > 2 * question.tolerance
        else:
            assert slip.answer != question.answer


def test_the_slips_of_the_default_are_told_apart() -> None:
    lesson = Lesson(default_tokens())
    said = {
        name: " ".join(slip.hint for slip in ASK[name](lesson, 1).slips)
        for name in ("softmax", "context", "scale", "causal", "projections")
    }
    assert "softmax-over-queries" in said["softmax"]
    assert "weights-transposed" in said["context"]
    assert "scale-missing" in said["scale"]
    assert "causal-missing" in said["causal"]
    assert "mask-after-softmax" in said["causal"]
    assert "takes a row of W_query" in said["projections"]


@pytest.mark.parametrize("name", ["scores", "softmax", "context", "projections", "scale", "causal", "dropout"])
def test_the_number_of_another_place_and_another_sign_are_known(name: str) -> None:
    lesson = Lesson(tokens_of("0.43 0.15 0.89; 0.55 0.87 0.66; -0.57 0.85 0.64; 0.22 0.58 -0.33"))
    question = ASK[name](lesson, 2)
    assert isinstance(question.answer, float)
    hints = {slip.hint: slip.answer for slip in question.slips}
    assert hints["That is right but for its sign."] == -question.answer
    (asked,) = question.at.values()
    elsewhere = [hint for hint in hints if hint.endswith(f" {asked} is asked for, counted from 0.")]
    assert elsewhere
    assert all(hints[hint] != question.answer for hint in elsewhere)


def test_the_default_by_hand() -> None:
    lesson = Lesson(default_tokens())
    assert lesson.simple.scores[0].tolist() == [[1, 0, 1], [0, 1, 2], [1, 2, 5]]
    e = math.e
    assert lesson.simple.weights[0, 1].tolist() == pytest.approx([part / (1 + e + e**2) for part in (1, e, e**2)])


def test_dropout_keeps_a_weight_doubled_or_drops_it() -> None:
    lesson = Lesson(tokens_of("Your journey starts with one step"))
    doubled = lesson.causal.weights[0] / (1 - DROPOUT_P)
    assert ((lesson.dropped == doubled) | (lesson.dropped == 0)).all()
    assert (lesson.dropped != doubled).any()
