"""Comparisons that hide later keys are read from a source as a statement of being causal; what only looks so is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.debugger import check
from qkv.inference.comparisons import comparison_said
from qkv.report import Report, Verdict

HIDES = {
    "columns against rows": """
        rows, cols = np.arange(T)[:, None] + S - T, np.arange(S)[None, :]
        s = np.where(cols > rows, -np.inf, s)""",
    "one row of positions, turned twice": """
        pos = torch.arange(q.shape[2])
        keep = pos[:, None] >= pos[None, :]
        s = s.masked_fill(~keep, float("-inf"))""",
    "joined with another mask": """
        pos = torch.arange(T)
        keep = (doc[:, None] == doc[None]) & (pos <= pos.unsqueeze(-1))
        s[~keep] = -1e30""",
    "distances, with a window": """
        gap = np.arange(T).reshape(-1, 1) - np.arange(S)
        s = np.where((0 <= gap) & (gap < 4), s, -np.inf)""",
    "hidden by either of two": """
        gap = torch.arange(S) - torch.arange(T).unsqueeze(1)
        s = s.masked_fill(torch.logical_or(gap > 0, gap <= -4), float("-inf"))""",
    "a function of two places": "mod = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx",
    "each with each": "s = np.where(np.less.outer(np.arange(T) + S - T, np.arange(S)), -np.inf, s)",
    "added": "s = s + (torch.arange(S) > torch.arange(T).view(-1, 1)) * -1e9",
    "by a function": "s = where(torch.ge(torch.arange(T)[:, None], torch.arange(S)), s, torch.finfo(s.dtype).min)",
    "blocks": """
        for m0 in range(0, T, 16):
            rows = m0 + np.arange(16)[:, None]
            for n0 in range(0, S, 16):
                cols = n0 + np.arange(16)
                p = np.where(cols <= rows, np.exp(s - m), 0.0)""",
    "a loop up to the query": """
        for i in range(T):
            for j in range(i + 1):
                s[i, j] = q[i] @ k[j]""",
    "a loop that goes on": """
        for i in range(T):
            for j in range(S):
                if j > i + S - T:
                    continue
                s = q[b, h, i] @ k[b, h, j]""",
    "a cut at the query": """
        for i, one in enumerate(q):
            out.append(softmax(k[: i + 1] @ one) @ v[: i + 1])""",
    "a cut from a window's begin to the query": """
        for t in range(T):
            s = k[:, :, max(0, t - W + 1) : t + 1] @ q[:, :, t]""",
    "an output that is made for the values' size": """
        out = np.empty((T, v.shape[-1]))
        for t in range(T):
            p = t + S - T
            out[t] = softmax(q[t] @ k[: p + 1].T) @ v[: p + 1]""",
    "a list of numbers": "[q[i] @ k[j] if j <= i else float('-inf') for i in range(T) for j in range(S)]",
}

HIDES_NOTHING_LATER = {
    "both sides of a window, joined": """
        gap = np.arange(T)[:, None] - np.arange(S)
        left, right = (gap >= 0) & (gap < 4), (gap < 0) & (-gap < 4)
        s = np.where(left | right, s, -np.inf)""",
    "only some that are later": "s = s.masked_fill((torch.arange(S) > torch.arange(T)[:, None]) & pad, -torch.inf)",
    "lengths": "s = np.where(np.arange(S)[None, :] < lens[:, None], s, -np.inf)",
    "a window of two sides": """
        i, j = np.arange(T)[:, None], np.arange(S)
        s = np.where((j > i - W) & (j < i + W), s, -np.inf)""",
    "distances without a sign": """
        gap = (torch.arange(T)[:, None] - torch.arange(S)).abs()
        s = s.masked_fill(gap >= 4, float("-inf"))""",
    "other reaches on both sides": """
        i, j = np.arange(T)[:, None], np.arange(S)
        lo, hi = i - left, i + right
        s = np.where((j >= lo) & (j <= hi), s, -np.inf)""",
    "a bias of two directions": """
        i, j = np.arange(T)[:, None], np.arange(S)
        s = s + np.where(i >= j, slopes * (j - i), slopes * (i - j))""",
    "buckets": """
        gap = torch.arange(S)[None, :] - torch.arange(T)[:, None]
        bucket = (gap > 0).to(torch.long) * 16
        s = s + table[bucket]""",
    "an argument asks for it": """
        rows, cols = np.arange(T)[:, None], np.arange(S)
        if ordered:
            s = np.where(cols > rows, -np.inf, s)""",
    "blocks of keys": """
        for n in range(0, S, 16):
            s = q @ k[:, :, n : n + 16].swapaxes(-1, -2)""",
    "documents": """
        for i in range(len(cu) - 1):
            s = q[cu[i] : cu[i + 1]] @ k[cu[i] : cu[i + 1]].T""",
    "one key after the other": """
        for i in range(S):
            s = q @ k[:, :, i : i + 1].swapaxes(-1, -2)""",
    "chunks that see each other": """
        for c in range(S // 8):
            s = q[:, c * 8 : (c + 1) * 8] @ k[:, : (c + 1) * 8].T""",
    "a loop over a window of two sides": """
        for i in range(T):
            for j in range(max(0, i - w), min(S, i + w + 1)):
                s[i, j] = q[i] @ k[j]""",
    "no Python": "if q",
}


def source(text: str) -> str:
    head = "    def attend(q, k, v, ordered=False):\n        T, S = q.shape[-2], k.shape[-2]"
    return f"{head}\n        {text}\n        return o\n"


@pytest.mark.parametrize("way", HIDES)
def test_a_comparison_that_hides_later_keys_is_read(way: str) -> None:
    assert comparison_said(source(HIDES[way])) is not None


@pytest.mark.parametrize("way", HIDES_NOTHING_LATER)
def test_what_only_looks_so_is_not(way: str) -> None:
    assert comparison_said(source(HIDES_NOTHING_LATER[way])) is None


KERNEL = '''import numpy as np

def blocked(q, k, v):
    """q, k, v: (B, H, T, D)."""
    T, S = q.shape[2], k.shape[2]
    top, total, out = -np.inf, 0.0, 0.0
    rows = np.arange(T)[:, None] + S - T
    for n in range(0, S, 4):
        cols = np.arange(n, min(n + 4, S))
        s = q @ k[:, :, cols].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        s = np.where({seen}, s, -np.inf)
        new = np.maximum(top, s.max(-1, keepdims=True))
        p, shrink = np.exp(s - new), np.exp(top - new)
        out, total, top = out * shrink + p @ v[:, :, cols], total * shrink + p.sum(-1, keepdims=True), new
    return out / total
'''


def judged(folder: Path, seen: str) -> Report:
    path = folder / "kernel.py"
    path.write_text(KERNEL.format(seen=seen))
    return check(f"{path}:blocked")


def test_a_kernel_is_held_to_the_order_that_it_compares_by(tmp_path: Path) -> None:
    right = judged(tmp_path, "cols <= rows")
    assert right.verdict is Verdict.RIGHT
    assert "causal, from 'cols <= rows' in its source" in right.assumptions
    wrong = judged(tmp_path, "cols - 1 <= rows")
    assert (wrong.verdict, wrong.faults[0].id) == (Verdict.WRONG, "causal-one-ahead")
