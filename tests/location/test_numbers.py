"""The line that is blamed where numbers are computed one by one, which no array has to do with."""

from __future__ import annotations

import pytest

from qkv.report import Verdict

ONE_BY_ONE = """import math
import numpy as np


def turn(vector, position):
    turned = np.zeros_like(vector)
    half = len(vector) // 2
    for c in range(half):
        angle = position * 10000.0 ** (-c / half)
        turned[c] = vector[c] * math.cos(angle) - vector[c + half] * math.sin(angle)
        turned[c + half] = vector[c + half] * math.cos(angle) + vector[c] * math.sin(angle)
    return turned


def attention(q, k, v):
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            group = h * k.shape[1] // q.shape[1]
            keys = [turn(row, j) for j, row in enumerate(k[b, group])]
            for i in range(q.shape[2]):
                query = turn(q[b, h, i], i)
                scores = np.zeros(i + 1)
                for j in range(i + 1):
                    product = sum(float(x) * float(y) for x, y in zip(query, keys[j]))
                    scores[j] = product / math.sqrt(q.shape[-1])
                weights = np.exp(scores - scores.max())
                weights = weights / weights.sum()
                out[b, h, i] = weights @ v[b, group, : i + 1]
    return out
"""
GIVEN = {"num_heads": 6, "num_kv_heads": 3, "rope": {"pairing": "halves"}}


def test_a_right_one_is_right(judged) -> None:
    assert judged(ONE_BY_ONE, **GIVEN).verdict is Verdict.RIGHT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("turn(q[b, h, i], i)", "turn(q[b, h, i], 0)"),
        ("turn(row, j)", "turn(row, j + 1)"),
        ("weights @ v[b, group, : i + 1]", "weights @ k[b, group, : i + 1]"),
        ("h * k.shape[1] // q.shape[1]", "h % k.shape[1]"),
    ],
)
def test_what_is_made_of_numbers_is_known_as_an_array(old, new, changed, judged) -> None:
    source, number = changed(ONE_BY_ONE, old, new)
    report = judged(source, **GIVEN)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None, report.line_why
    assert report.line.line == number


@pytest.mark.parametrize(("old", "new"), [("angle = position", "angle = -position"), ("10000.0", "500.0")])
@pytest.mark.slow
def test_within_what_makes_the_numbers_no_line_is_named(old, new, changed, judged) -> None:
    report = judged(changed(ONE_BY_ONE, old, new)[0], **GIVEN)
    assert (report.verdict, report.line) == (Verdict.WRONG, None)
    assert "number by number" in report.line_why
