"""The line that is blamed in code that goes through queries and keys in blocks, where no fault explains the numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.adapters.host import Host
from qkv.adapters.opening import Conventions
from qkv.debugger import settled
from qkv.diagnosis import Diagnosis
from qkv.location import located
from qkv.report import Report, SourceLine
from qkv.request import Request

BLOCKWISE = """import numpy as np

ROWS, COLUMNS = 4, 3


def attention(q, k, v):
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    offset = k.shape[2] - q.shape[2]
    for i in range(0, q.shape[2], ROWS):
        rows = np.arange(i, min(i + ROWS, q.shape[2]))[:, None] + offset
        top = np.full((*q.shape[:2], len(rows), 1), -np.inf)
        total = np.zeros(top.shape)
        mixed = np.zeros((*q.shape[:2], len(rows), v.shape[-1]))
        for j in range(0, k.shape[2], COLUMNS):
            if j > rows.max():
                break
            keys = k[:, :, j : j + COLUMNS]
            scores = q[:, :, i : i + ROWS] @ keys.swapaxes(2, 3) / np.sqrt(q.shape[-1])
            columns = np.arange(j, j + keys.shape[2])[None, :]
            scores = np.where(columns <= rows, scores, -np.inf)
            higher = np.maximum(top, scores.max(axis=-1, keepdims=True))
            shares = np.exp(scores - higher)
            decay = np.exp(top - higher)
            total = total * decay + shares.sum(axis=-1, keepdims=True)
            mixed = mixed * decay + shares @ v[:, :, j : j + COLUMNS]
            top = higher
        out[:, :, i : i + ROWS] = mixed / total
    return out
"""

MERGED = """import torch


def part(q, k, v, keep):
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep, -torch.inf)
    lse = scores.logsumexp(dim=-1, keepdim=True)
    return torch.exp(scores - lse.nan_to_num(neginf=0.0)) @ v, lse


def attention(q, k, v):
    half = k.shape[2] // 2
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    first, lse_1 = part(q, k[:, :, :half], v[:, :, :half], keep[:, :half])
    second, lse_2 = part(q, k[:, :, half:], v[:, :, half:], keep[:, half:])
    lse = torch.logaddexp(lse_1, lse_2)
    return first * torch.exp(lse_1 - lse) + second * torch.exp(lse_2 - lse)
"""

CHUNKED = """import torch

CHUNK = 3


def attention(q, k, v):
    parts = []
    for start in range(0, q.shape[2], CHUNK):
        query = q[:, :, start : start + CHUNK]
        scores = query @ k.mT / q.shape[-1] ** 0.5
        places = torch.arange(query.shape[2]) + start + k.shape[2] - q.shape[2]
        scores[..., torch.arange(k.shape[2]) > places[:, None]] = -torch.inf
        parts.append(scores.softmax(-1) @ v)
    return torch.cat(parts, dim=2)
"""

HANDED = """import torch


def attend(q, k, v, start):
    places = torch.arange(start, start + q.shape[2])[:, None]
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(torch.arange(k.shape[2]) > places, -torch.inf)
    return scores.softmax(-1) @ v


def attention(q, k, v):
    before = k.shape[2] - q.shape[2]
    parts = []
    for start in range(0, q.shape[2], 3):
        parts.append(attend(q[:, :, start : start + 3], k, v, before + start))
    return torch.cat(parts, dim=2)
"""

UNSCALED_PART = """import torch


def attention(q, k, v):
    scale = q.shape[-1] ** -0.5
    first = q[:, :, :1] * scale @ k.mT
    others = q[:, :, 1:] * scale @ k.mT
    scores = torch.cat([first, others], dim=2)
    return scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf).softmax(-1) @ v
"""


@pytest.fixture
def unexplained(tmp_path: Path) -> Callable[[str], SourceLine | str]:
    """The line of what is wrong with a function, told without any fault that explains its numbers."""

    def line(source: str) -> SourceLine | str:
        path = tmp_path / "candidate.py"
        path.write_text(source)
        stated = {"causal": True, "query_offset": "bottom_right"}
        request = Request(f"{path}:attention", stated, False, Conventions(layout="BHTD"), 0, 20.0, 1 << 32)
        host = Host()
        try:
            trial = settled(host, host.open(request.to_open), request)[0]
            trial.run(quick=False)
            return located(trial, Diagnosis())
        finally:
            host.close()

    return line


@pytest.fixture
def planted(
    unexplained: Callable[[str], SourceLine | str], changed: Callable[..., tuple[str, int]]
) -> Callable[[str, str, str], tuple[SourceLine, int]]:
    """The line that is blamed in a source with one change, and the line that was changed."""

    def lines(source: str, old: str, new: str) -> tuple[SourceLine, int]:
        faulty, line = changed(source, old, new)
        blamed = unexplained(faulty)
        assert isinstance(blamed, SourceLine), blamed
        return blamed, line

    return lines


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (BLOCKWISE, "mixed = mixed * decay +", "mixed = mixed +"),
        (BLOCKWISE, "total = total * decay +", "total = total +"),
        (BLOCKWISE, "decay = np.exp(", "decay = np.exp2("),
        (BLOCKWISE, "np.arange(j, j + keys.shape[2])", "np.arange(keys.shape[2])"),
        (BLOCKWISE, "for j in range(0, k.shape[2], COLUMNS)", "for j in range(0, k.shape[2] - COLUMNS + 1, COLUMNS)"),
        (MERGED, "torch.exp(lse_1 - lse) + second", "torch.exp2(lse_1 - lse) + second"),
        (MERGED, "torch.logaddexp(lse_1, lse_2)", "torch.maximum(lse_1, lse_2)"),
        (MERGED, "keep[:, :half])", "torch.ones_like(keep[:, :half]))"),
        (CHUNKED, "torch.arange(query.shape[2]) + start +", "torch.arange(query.shape[2]) +"),
        (UNSCALED_PART, "q[:, :, 1:] * scale @ k.mT", "q[:, :, 1:] @ k.mT"),
    ],
)
def test_a_block_is_known_by_the_tokens_that_it_has(
    planted: Callable[[str, str, str], tuple[SourceLine, int]], source: str, old: str, new: str
) -> None:
    blamed, line = planted(source, old, new)
    assert blamed.line == line


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (BLOCKWISE, "if j > rows.max():", "if j > rows.min():"),
        (HANDED, "k, v, before + start)", "k, v, before)"),
        (MERGED, "k[:, :, :half], v[:, :, :half], keep[:, :half]", "k[:, :, :2], v[:, :, :2], keep[:, :2]"),
    ],
)
def test_what_two_lines_do_together_is_said_of_both(
    planted: Callable[[str, str, str], tuple[SourceLine, int]], source: str, old: str, new: str
) -> None:
    blamed, line = planted(source, old, new)
    assert blamed.until is not None
    assert min(blamed.line, blamed.until) <= line <= max(blamed.line, blamed.until)


@pytest.mark.slow
def test_queries_of_a_block_that_are_counted_as_keys_are_blamed_where_they_are(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]]
) -> None:
    source, line = changed(BLOCKWISE, "[:, None] + offset", "[:, None]")
    report = judged(source, num_heads=6, query_offset="bottom_right")
    assert [fault.id for fault in report.faults] == ["causal-corner"]
    assert report.line is not None
    assert report.line.line == line
