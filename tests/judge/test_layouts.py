"""The order of a function's axes: said by the only docstring there is, or found though a wrong one ends the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.debugger import check
from qkv.report import Report, Verdict

KERNEL = """{documentation}
import os
import signal

import numpy as np


def kernel(q, k, v, window={window}):
    if q.shape[2] != 6:  # as compiled code divides by a number of heads that is none
        os.kill(os.getpid(), signal.SIGFPE)
    T, S = q.shape[1], k.shape[1]
    ahead = np.arange(S) - np.arange(T)[:, None] - S + T
    s = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    s = np.where((ahead > 0) | (-ahead >= (window or S)), -np.inf, s)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhts,bshd->bthd", p / p.sum(-1, keepdims=True), v)
"""


def judged(folder: Path, layout: str | None, documentation: str = "", window: int | None = None) -> Report:
    path = folder / "kernel.py"
    path.write_text(KERNEL.format(documentation=documentation, window=window))
    return check(f"{path}:kernel", {"num_heads": 6, "causal": True}, layout=layout)


def test_a_layout_over_which_the_process_ends_is_not_the_last_that_is_tried(tmp_path: Path) -> None:
    report = judged(tmp_path, None)
    assert report.verdict is Verdict.RIGHT
    assert "arrays are BTHD (batch, token, head, dim)" in report.assumptions


def test_what_it_was_called_with_when_it_ended_is_said(tmp_path: Path) -> None:
    report = judged(tmp_path, "BHTD")
    assert report.verdict is Verdict.FAILED
    assert "SIGFPE" in report.why
    assert "arrays are BHTD (batch, head, token, dim)" in report.hint
    assert "--layout BTHD" in report.hint


@pytest.mark.parametrize("window", [None, 3])
def test_the_docstring_of_a_file_speaks_of_its_only_function(window: int | None, tmp_path: Path) -> None:
    """And a window that is there by default is widened where none is meant."""
    report = judged(tmp_path, None, '"""A kernel. q, k, v are (B, T, H, D)."""', window)
    assert report.verdict is Verdict.RIGHT
