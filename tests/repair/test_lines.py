"""The line that changes is the one on which a number is set, or a helper called, and not one that only uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.debugger import judge
from qkv.report import Report
from qkv.request import Request

MODULE = """\
import torch
from torch import nn

HEAD_DIM = 8
SCALE = HEAD_DIM ** -0.5


class Attention(nn.Module):
    def __init__(self, d_model=32, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.scale = self.head_dim ** -0.5
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, _ = x.shape
        split = lambda y: y.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        weights = torch.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, t, -1))
"""

FUNCTION = """\
import numpy as np


def visible(n):
    return np.tril(np.ones((n, n)))


def hidden(n):
    return 1 - visible(n)


def causal_attention(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    scores = scores + hidden(query.shape[-2]) * -1e9
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ value
"""


def report_on(folder: Path, text: str) -> Report:
    file = folder / "attention.py"
    file.write_text(text, encoding="utf-8")
    return judge(Request(str(file), patch_seconds=30.0))


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (MODULE, "self.scale = self.head_dim ** -0.5", "self.scale = self.head_dim ** -1"),
        (MODULE.replace("self.scale,", "SCALE,"), "SCALE = HEAD_DIM ** -0.5", "SCALE = 1 / HEAD_DIM"),
        (FUNCTION, "scores + hidden(", "scores + visible("),
        (FUNCTION, "scores + hidden(", "scores + (1 - hidden("),
    ],
    ids=["set in __init__", "set at the top", "another helper", "inverted twice"],
)
def test_the_line_that_sets_it_changes(tmp_path: Path, source: str, old: str, new: str) -> None:
    wrong = source.replace(old, new)
    if new.count("(") > new.count(")") + 1:
        wrong = wrong.replace("shape[-2]) *", "shape[-2])) *")
    report = report_on(tmp_path, wrong)
    assert report.patch is not None
    assert report.patch.line == next(place for place, line in enumerate(wrong.splitlines(), 1) if new in line)
    assert report.line is not None
    assert report.line.line == report.patch.line
