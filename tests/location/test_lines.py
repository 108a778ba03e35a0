"""The line that is blamed, for one change of a right file at a time."""

from __future__ import annotations

import pytest

from qkv.report import Verdict

MODULE = """import math
import torch
from torch import nn


def softmax(scores, dim=-1):
    exps = torch.exp(scores - scores.amax(dim=dim, keepdim=True))
    return exps / exps.sum(dim=dim, keepdim=True)


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.scale = self.head_dim**-0.5
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1).bool())

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        batch, tokens, _ = x.shape
        queries = self.split(self.W_query(x))
        keys = self.split(self.W_key(x))
        values = self.split(self.W_value(x))
        scores = queries @ keys.transpose(-2, -1)
        scores = scores * self.scale
        hidden = self.mask[:tokens, :tokens]
        scores = scores.masked_fill(hidden, float("-inf"))
        weights = softmax(scores)
        context = weights @ values
        context = context.transpose(1, 2)
        context = context.reshape(batch, tokens, -1)
        return self.out_proj(context)
"""

NUMPY = """import numpy as np


def softmax(z, axis):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attention(q, k, v):
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h].transpose(0, 2, 1)
        scores = scores / np.sqrt(q.shape[-1])
        future = np.triu(np.ones(scores.shape[-2:], dtype=bool), k=1)
        scores = np.where(future, -np.inf, scores)
        weights = softmax(scores, axis=-1)
        out[:, h] = weights @ v[:, h]
    return out
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.scale = self.head_dim**-0.5", "self.scale = self.head_dim**-0.25"),
        ("diagonal=1", "diagonal=2"),
        ("scores.masked_fill(hidden,", "scores.masked_fill(~hidden,"),
        ("keys = self.split(self.W_key(x))", "keys = self.split(self.W_query(x))"),
        ("weights @ values", "weights @ keys"),
        pytest.param("exps.sum(dim=dim", "exps.sum(dim=1", marks=pytest.mark.slow),
        ("context.reshape(batch, tokens, -1)", "context.transpose(1, 2).reshape(batch, tokens, -1)"),
        ("queries @ keys.transpose(-2, -1)", "keys @ queries.transpose(-2, -1)"),
        ("return self.out_proj(context)", "return context"),
        pytest.param(
            "self.num_heads, self.head_dim).transpose(1, 2)",
            "self.head_dim, self.num_heads).permute(0, 3, 1, 2)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_module_is_blamed_on_the_line_that_was_changed(old, new, changed, judged) -> None:
    source, number = changed(MODULE, old, new)
    report = judged(source)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert number in (report.line.line, report.line.until)
    assert report.line.code == source.splitlines()[report.line.line - 1].strip()


def test_two_lines_that_do_not_go_together_are_said_in_plain_words(judged) -> None:
    report = judged(MODULE.replace("        context = context.transpose(1, 2)\n", ""))
    assert report.line is not None
    assert (report.line.code, report.line.until) == (
        "context = context.reshape(batch, tokens, -1)",
        report.line.line - 1,
    )
    said = f"line {report.line.line} is given the right numbers by line {report.line.until}"
    assert report.line.note.startswith(f"{said}, in another order of axes than it needs")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k=1", "k=2"),
        ("-np.inf, scores", "-5.0, scores"),
        ("softmax(scores, axis=-1)", "softmax(scores, axis=-2)"),
        pytest.param("weights @ v[:, h]", "weights @ v[:, 0]", marks=pytest.mark.slow),
    ],
)
def test_a_loop_over_heads_in_numpy_is_blamed_on_the_line_that_was_changed(old, new, changed, judged) -> None:
    source, number = changed(NUMPY, old, new)
    report = judged(source, num_heads=6)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert report.line.line == number


@pytest.mark.parametrize("gone", ["        scores = scores * self.scale\n", "        scores = scores.masked_fill"])
def test_where_a_stage_is_left_out_both_ends_are_told(gone, judged) -> None:
    start = MODULE.index(gone)
    end = MODULE.index("\n", start) + 1
    number = MODULE[:start].count("\n") + 1
    report = judged(MODULE[:start] + MODULE[end:])
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert "left out" in report.line.note
    # The line that came before the one that is gone, or one further up; and the first that lacks it.
    assert report.line.line < number


def test_a_right_file_has_no_line(judged) -> None:
    report = judged(MODULE)
    assert (report.verdict, report.line) == (Verdict.RIGHT, None)
