"""The line that is blamed where a mask is made by several functions, of a distance and a size that is handed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.debugger import check

WINDOW = """import torch
from torch import nn


def together(first, second):
    return first & second


def reachable(tokens, span):
    here = torch.arange(tokens).unsqueeze(1)
    there = torch.arange(tokens).unsqueeze(0)
    back = here - there
    earlier = back >= 0
    close = back < span
    return together(earlier, close)


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length, window=3):
        super().__init__()
        self.num_heads, self.size = num_heads, d_out // num_heads
        self.window = window
        self.qkv = nn.Linear(d_in, 3 * d_out)
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        batch, tokens, _ = x.shape
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        query, key, value = (
            t.view(batch, tokens, self.num_heads, self.size).transpose(1, 2) for t in (query, key, value)
        )
        scores = query @ key.transpose(-2, -1) / self.size**0.5
        seen = reachable(tokens, self.window)
        scores = scores.masked_fill(~seen, -torch.inf)
        context = torch.softmax(scores, dim=-1) @ value
        return self.out_proj(context.transpose(1, 2).reshape(batch, tokens, -1))
"""

DOCUMENTS = """import torch


def alike(ids):
    return ids[:, :, None] == ids[:, None, :]


def all_of(*masks):
    kept = masks[0]
    for mask in masks[1:]:
        kept = kept & mask
    return kept


def attention(q, k, v, document_ids=None):
    tokens = q.shape[-2]
    if document_ids is None:
        document_ids = torch.zeros(q.shape[0], tokens, dtype=torch.long)
    earlier = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    seen = all_of(earlier[None], alike(document_ids))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~seen[:, None], float("-inf"))
    return torch.softmax(scores, -1) @ v
"""

MASKED_BY_A_PRODUCT = """import numpy as np


def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    shares = np.exp(s - s.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    shares = shares * np.tril(np.ones(s.shape[-2:]))
    return shares @ v
"""

LOOPS = """import numpy as np


def attention(q, k, v):
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                scores = k[b, h] @ q[b, h, t] / np.sqrt(q.shape[-1])
                weights = np.exp(scores - scores.max())
                weights = weights / weights.sum()
                weights = weights * (np.arange(k.shape[2]) <= t)
                out[b, h, t] = weights @ v[b, h]
    return out
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first & second", "first | second"),
        ("here - there", "there - here"),
        ("back >= 0", "back > 0"),
        ("reachable(tokens, self.window)", "reachable(tokens, self.window + 1)"),
        ("self.window = window", "self.window = window - 1"),
        pytest.param("back < span", "back <= span", marks=pytest.mark.slow),
        pytest.param("together(earlier, close)", "together(earlier, earlier)", marks=pytest.mark.slow),
        ("query, key, value = self.qkv", "key, query, value = self.qkv"),
    ],
)
def test_a_mask_of_helpers_is_blamed_on_the_line_that_was_changed(old, new, changed, judged) -> None:
    source, number = changed(WINDOW, old, new)
    report = judged(source, window=3)
    assert report.line is not None
    assert number in (report.line.line, report.line.until)


def test_of_one_mask_that_a_distance_makes_both_lines_are_told(changed, judged) -> None:
    lone = WINDOW.replace("    close = back < span\n", "").replace("(earlier, close)", "(earlier, earlier)")
    source, number = changed(lone, "here - there", "there - here")
    report = judged(source)
    assert (report.line.line, report.line.until) == (number + 1, number)
    assert "counted the other way round" in report.line.note


@pytest.mark.parametrize(
    ("old", "new"), [("kept = kept & mask", "kept = kept | mask"), ("if document_ids is None:", "if tokens:")]
)
def test_documents_that_are_lost_are_blamed_where_they_are(old, new, changed, judged) -> None:
    source, number = changed(DOCUMENTS, old, new)
    assert judged(source, documents=True).line.line == number


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (LOOPS, "weights = weights * (np.arange(k.shape[2]) <= t)"),
        pytest.param(MASKED_BY_A_PRODUCT, "shares = shares * np.tril(np.ones(s.shape[-2:]))", marks=pytest.mark.slow),
    ],
)
def test_weights_that_are_masked_are_blamed_where_they_are(source, line, judged) -> None:
    report = judged(source)
    assert [fault.id for fault in report.faults] == ["mask-after-softmax"]
    assert report.line.code == line


@pytest.mark.slow
def test_a_row_that_hides_all_is_told_with_what_hides_it(changed, judged) -> None:
    source = """import torch


def attention(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v
"""
    report = judged(source, empty_row="zero")
    assert [fault.id for fault in report.faults] == ["empty-row"]
    assert (report.line.line, report.line.until) == (7, 6)


def test_slopes_that_are_twice_as_steep_are_no_distance_of_the_right_ones(judged) -> None:
    source = """import numpy as np


def steepness(heads):
    return np.array([2.0 ** (-8.0 * head / heads) for head in range(heads)])


def attention(q, k, v):
    far = np.arange(k.shape[2])[None, :] - np.arange(q.shape[2])[:, None]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores + steepness(q.shape[1])[:, None, None] * far
    scores = np.where(far <= 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v
"""
    report = judged(source, alibi=True, num_heads=4)
    assert [fault.id for fault in report.faults] == ["alibi-slopes"]
    assert report.line.line == 5


IN_ORDER = """import numpy as np


def attention(query, key, value, document_ids):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    same = document_ids[:, None, :, None] >= document_ids[:, None, None, :]
    scores = np.where(same, scores, -np.inf)
    scores = scores - scores.max(-1, keepdims=True)
    weights = np.exp(scores)
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ value
"""


@pytest.mark.slow
def test_a_mask_that_is_another_one_is_not_called_right(tmp_path: Path) -> None:
    (file := tmp_path / "candidate.py").write_text(IN_ORDER)
    line = check(f"{file}:attention").line
    assert line is not None
    assert line.line == 6
    assert line.note.startswith("the mask that it makes for line 7 is not the one that is meant")
