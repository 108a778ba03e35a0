"""The line that is blamed where tokens come one by one: in calls that follow each other, or in a loop of one call."""

from __future__ import annotations

import pytest

CACHED = """import torch
from torch import nn


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def tables(places, width):
    speeds = 10000.0 ** -(torch.arange(0, width, 2).double() / width)
    angles = places[:, None] * speeds
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length):
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out, bias=False)

    def forward(self, x, past_key_value=None):
        batch, new, _ = x.shape
        query, key, value = (
            proj(x).view(batch, new, self.num_heads, -1).transpose(1, 2)
            for proj in (self.W_query, self.W_key, self.W_value)
        )
        begin = 0 if past_key_value is None else past_key_value[0].shape[2]
        places = torch.arange(begin, begin + new)
        cos, sin = tables(places, query.shape[-1])
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        if past_key_value is not None:
            key = torch.cat([past_key_value[0], key], dim=2)
            value = torch.cat([past_key_value[1], value], dim=2)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - new)
        weights = torch.softmax(scores.masked_fill(ahead, float("-inf")), dim=-1)
        context = (weights @ value).transpose(1, 2).reshape(batch, new, -1)
        return self.out_proj(context), (key, value)
"""

STREAMED = """import torch


class Kept:
    def __init__(self):
        self.keys, self.values = [], []

    def add(self, key, value):
        self.keys.append(key)
        self.values.append(value)

    def all(self):
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)


def turned(x, place):
    first, second = x.chunk(2, dim=-1)
    angles = place * 10000.0 ** -(torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attention(q, k, v):
    kept, made = Kept(), []
    for t in range(q.shape[2]):
        place = t
        query = turned(q[:, :, t : t + 1], place)
        kept.add(turned(k[:, :, t : t + 1], place), v[:, :, t : t + 1])
        keys, values = kept.all()
        scores = query @ keys.mT / q.shape[-1] ** 0.5
        made.append(torch.softmax(scores, dim=-1) @ values)
    return torch.cat(made, dim=2)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.arange(begin, begin + new)", "torch.arange(new)"),
        ("begin = 0 if past_key_value is None else past_key_value[0].shape[2]", "begin = 0"),
        pytest.param("triu(1 + scores.shape[-1] - new)", "triu(1)", marks=pytest.mark.slow),
    ],
)
def test_what_shows_in_later_calls_only_is_blamed_on_the_line_that_was_changed(old, new, changed, judged) -> None:
    source, number = changed(CACHED, old, new)
    report = judged(source, rope="halves")
    assert report.line is not None
    assert report.line.line == number


@pytest.mark.parametrize(("old", "new"), [("place = t\n", "place = 3\n"), ("angles = place *", "angles = -place *")])
def test_a_place_that_never_advances_or_is_negative_is_blamed_where_it_is_set(old, new, changed, judged) -> None:
    source, number = changed(STREAMED, old, new)
    report = judged(source, rope="halves")
    assert report.line is not None
    assert report.line.line == number


@pytest.mark.slow
def test_keys_that_come_too_late_for_their_query_are_said_to(judged) -> None:
    added = "        kept.add(turned(k[:, :, t : t + 1], place), v[:, :, t : t + 1])\n"
    read = "        keys, values = kept.all()\n"
    first = (
        f"        if t == 0:\n    {added}            made.append(torch.zeros_like(v[:, :, :1]))\n            continue\n"
    )
    assert added + read in STREAMED
    report = judged(STREAMED.replace(added + read, first + read + added), rope="halves")
    assert [fault.id for fault in report.faults] == ["causal-strict"]
    assert report.line.code == read.strip()
    assert "too early or too late" in report.line.note
