"""A module that keeps its cache, not causal by its words: each step sees what has come so far."""

from __future__ import annotations

import pytest

CACHED = """import math

import torch
from torch import nn


def turns(width, end, theta=10000.0):
    angles = torch.outer(torch.arange(end), 1.0 / theta ** (torch.arange(0, width, 2).float() / width))
    return torch.polar(torch.ones_like(angles), angles)


def turned(x, by):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[:, None]).flatten(3).type_as(x)


def repeated(x, times):
    return x if times == 1 else x[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, max_batch_size=8, max_seq_len=64):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.width = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.width, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.width, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.width, bias=False)
        self.wo = nn.Linear(n_heads * self.width, dim, bias=False)
        self.cache_k = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.width)
        self.cache_v = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.width)

    def forward(self, x, start_pos, freqs_cis, mask):
        batch, length, _ = x.shape
        xq = self.wq(x).view(batch, length, self.n_heads, self.width)
        xk = self.wk(x).view(batch, length, self.n_kv_heads, self.width)
        xv = self.wv(x).view(batch, length, self.n_kv_heads, self.width)
        xq, xk = turned(xq, freqs_cis), turned(xk, freqs_cis)
        self.cache_k = self.cache_k.to(xq)
        self.cache_v = self.cache_v.to(xq)
        self.cache_k[:batch, start_pos : start_pos + length] = xk
        self.cache_v[:batch, start_pos : start_pos + length] = xv
        keys = self.cache_k[:batch, : start_pos + length]
        values = self.cache_v[:batch, : start_pos + length]
        keys = repeated(keys, self.n_heads // self.n_kv_heads)
        values = repeated(values, self.n_heads // self.n_kv_heads)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.width)
        if mask is not None:
            scores = scores + mask
        context = torch.matmul(torch.softmax(scores, dim=-1), values)
        return self.wo(context.transpose(1, 2).reshape(batch, length, -1))
"""


def test_it_is_right_as_it_is(judged) -> None:
    assert judged(CACHED, causal=False).verdict.value == "right"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "self.cache_v[:batch, start_pos : start_pos + length] = xv",
            "self.cache_v[:batch, :length] = xv",
        ),
        pytest.param(
            "self.cache_k[:batch, start_pos : start_pos + length] = xk",
            "self.cache_k[:batch, :length] = xk",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "values = repeated(values, self.n_heads // self.n_kv_heads)",
            "values = repeated(keys, self.n_heads // self.n_kv_heads)",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "values = self.cache_v[:batch, : start_pos + length]",
            "values = self.cache_k[:batch, : start_pos + length]",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_line_that_was_changed_is_blamed(old: str, new: str, changed, judged) -> None:
    source, number = changed(CACHED, old, new)
    report = judged(source, causal=False)
    assert report.verdict.value == "wrong"
    assert report.line is not None
    assert report.line.line == number
