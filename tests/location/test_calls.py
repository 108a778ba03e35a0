"""The line that is blamed where the user's own function is right, and is called with something wrong."""

from __future__ import annotations

import pytest

from qkv.report import Verdict

HELPERS = """import torch
from torch import nn


def softmax_rows(scores, axis=-1):
    exps = torch.exp(scores - scores.amax(dim=axis, keepdim=True))
    return exps / exps.sum(dim=axis, keepdim=True)


def causal_mask(n, m, offset=0):
    return torch.tril(torch.ones(n, m, dtype=torch.bool), diagonal=offset)


def scaled(scores, factor):
    return scores * factor


def attend(q, k, v, mask):
    scores = scaled(q @ k.transpose(-2, -1), q.shape[-1] ** -0.5)
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax_rows(scores)
    return weights @ v


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        n = x.shape[1]
        queries = self.split(self.W_query(x))
        keys = self.split(self.W_key(x))
        values = self.split(self.W_value(x))
        mask = causal_mask(n, n)
        context = attend(queries, keys, values, mask)
        context = context.transpose(1, 2).reshape(x.shape[0], n, -1)
        return self.out_proj(context)
"""

TOKEN_BY_TOKEN = """import numpy as np


def attention(q, k, v):
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                start = max(0, t - 3)
                stop = t + 1
                scores = k[b, h, start:stop] @ q[b, h, t]
                scores = scores / np.sqrt(q.shape[-1])
                weights = np.exp(scores - scores.max())
                weights = weights / weights.sum()
                out[b, h, t] = weights @ v[b, h, start:stop]
    return out
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("attend(queries, keys, values, mask)", "attend(queries, values, keys, mask)"),
        ("attend(queries, keys, values, mask)", "attend(keys, queries, values, mask)"),
        ("attend(queries, keys, values, mask)", "attend(queries, keys, keys, mask)"),
        ("causal_mask(n, n)", "causal_mask(n, n, -1)"),
        ("causal_mask(n, n)", "causal_mask(n, n, offset=1)"),
        ("softmax_rows(scores)", "softmax_rows(scores, axis=-2)"),
        ("self.split(self.W_key(x))", "self.split(self.W_query(x))"),
        ("q.shape[-1] ** -0.5)", "q.shape[-1])"),
    ],
)
def test_a_call_with_something_wrong_is_blamed(old, new, changed, judged) -> None:
    source, number = changed(HELPERS, old, new)
    report = judged(source)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert report.line.line == number


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("diagonal=offset", "diagonal=offset + 1"),
        ("return weights @ v", "return weights @ k"),
        ("return scores * factor", "return scores * factor**2"),
    ],
)
def test_a_function_that_is_wrong_however_it_is_called_is_blamed_itself(old, new, changed, judged) -> None:
    source, number = changed(HELPERS, old, new)
    report = judged(source)
    assert report.line is not None
    assert report.line.line == number


@pytest.mark.parametrize(
    ("old", "new"), [("max(0, t - 3)", "max(0, t - 4)"), ("stop = t + 1", "stop = t + 2"), ("/ np.sqrt", "* np.sqrt")]
)
def test_a_loop_over_tokens_is_blamed_on_the_line_that_was_changed(old, new, changed, judged) -> None:
    source, number = changed(TOKEN_BY_TOKEN, old, new)
    report = judged(source, num_heads=6, window=4)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert report.line.line == number


PARTLY_TURNED = """import torch


def turned(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-x2, x1), dim=-1) * sin


def attention(q, k, v, cos, sin):
    dims = cos.shape[-1]
    q_turned = turned(q[..., :dims], cos, sin)
    k_turned = turned(k[..., :dims], cos, sin)
    q = torch.cat((q_turned, q[..., dims:]), dim=-1)
    k = torch.cat((k_turned, k[..., dims:]), dim=-1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


def test_tables_that_one_call_hands_over_the_wrong_way_are_blamed_there(changed, judged) -> None:
    source, number = changed(PARTLY_TURNED, "k[..., :dims], cos, sin)", "k[..., :dims], sin, cos)")
    report = judged(source, rope="halves")  # all channels turn, so that what is joined on is empty
    assert [fault.id for fault in report.faults] == ["rope-sign"]
    assert report.line is not None
    assert report.line.line == number


TURNED_IN_PAIRS = """import torch


def turned(x, turns):
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


def attention(q, k, v):
    at, width = torch.arange(q.shape[-2]), q.shape[-1]
    angles = torch.outer(at, 10000.0 ** (-torch.arange(0, width, 2).double() / width))
    turns = torch.polar(torch.ones_like(angles), angles)
    q = turned(q, turns)
    k = turned(k, turns)
    scores = torch.where(at[:, None] >= at, q @ k.mT / width**0.5, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
"""


def test_a_value_that_is_turned_too_is_blamed_on_its_call(changed, judged) -> None:
    source, number = changed(
        TURNED_IN_PAIRS, "    k = turned(k, turns)\n", "    k, v = turned(k, turns), turned(v, turns)\n"
    )
    report = judged(source, rope="adjacent")
    assert [fault.id for fault in report.faults] == ["value-after-rope"]
    assert report.line is not None
    assert report.line.line == number
