"""What a script is held to, and where in it that is taken from; and what is said of one that holds no attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.adapters.process import HostProcess
from qkv.adapters.texts import text_of
from qkv.report import Report, Verdict
from qkv.report.json_form import to_mapping
from qkv.report.terminal import as_text
from qkv.scripts import explained

HEADS = """\
import torch
torch.manual_seed(0)
x = torch.randn(2, 5, 12)
W_q, W_k, W_v = (torch.randn(12, 12) for _ in range(3))
q, k, v = ((x @ w).view(2, 5, 3, 4).transpose(1, 2) for w in (W_q, W_k, W_v))
scores = q @ k.transpose(2, 3) / 4**0.5
scores.masked_fill_(torch.ones(5, 5).triu(1) == 1, float("-inf"))
context = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 12)
"""
PLAIN = """\
import numpy as np
x = np.random.rand(4, 3)
s = x @ x.T
w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
c = w @ x
"""
LIST = """\
import torch
torch.manual_seed(1)
x = torch.randn(5, 6)
def head(x, d):
    q, k, v = (x @ torch.randn(6, d) for _ in range(3))
    return torch.softmax(q @ k.T / d**0.5, -1) @ v
z = torch.cat([head(x, 2) for _ in range(3)], dim=-1)
"""
FIRST = """\
import torch
q, k, v = (torch.randn(3, 5, 4) for _ in range(3))
y = (torch.softmax(q @ k.mT / 2, -1) @ v).permute(1, 0, 2).reshape(5, 12)
"""


@pytest.fixture
def judge(host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Report]:
    monkeypatch.chdir(tmp_path)

    def judged(source: str) -> Report:
        Path("mine.py").write_text(source)
        return explained(text_of("mine.py"), host, "").report

    return judged


PROJECTED = "(query and key are projected)"
UNSCALED = "1 head of 3 channels, scores not scaled (no projection makes query and key)"


@pytest.mark.parametrize(
    ("source", "verdict", "held_to"),
    [
        (HEADS, Verdict.RIGHT, f"3 heads of 4 channels, scores times 1/sqrt(4) {PROJECTED}, causal (line 7)"),
        (PLAIN, Verdict.RIGHT, f"{UNSCALED}, no mask"),
        (LIST, Verdict.RIGHT, f"3 heads side by side, each of 2 channels, scores times 1/sqrt(2) {PROJECTED}, no mask"),
        (FIRST, Verdict.RIGHT, f"3 heads of 4 channels, scores times 1/sqrt(4) {PROJECTED}, no mask"),
        (HEADS.replace(" / 4**0.5", ""), Verdict.WRONG,
         f"3 heads of 4 channels, scores times 1/sqrt(4) {PROJECTED}, causal (line 7)"),
        (PLAIN.replace("c =", "causal_context ="), Verdict.WRONG,
         f"{UNSCALED}, causal ('causal_context' says so)"),
    ],
)  # fmt: skip
def test_what_a_script_is_held_to(judge: Callable[[str], Report], source: str, verdict: Verdict, held_to: str) -> None:
    report = judge(source)
    assert (report.verdict, report.held_to) == (verdict, held_to)
    assert f"held to   {held_to[:40]}" in as_text(report)
    assert to_mapping(report)["held_to"] == held_to


def test_attentions_of_one_script_that_differ_are_told_apart(judge: Callable[[str], Report]) -> None:
    report = judge(
        PLAIN + "s[np.triu_indices(4, 1)] = -np.inf\nw = np.exp(s)\nw /= w.sum(1, keepdims=True)\nd = w @ x\n"
    )
    first, second = report.held_to.splitlines()
    assert first.startswith("c: ")
    assert first.endswith("no mask")
    assert second.startswith("d: ")
    assert second.endswith("causal (line 6)")


@pytest.mark.parametrize(
    ("source", "why", "hint"),
    [
        (PLAIN.replace("rand(4, 3)", "rand(4, 3)\nx[2, 1] = np.nan"), "x (mine.py:3) holds NaN, first at [2, 1]",
         "print(np.argwhere(np.isnan(x))) says where"),
        (PLAIN.replace("x @ x.T", "np.log(x - 1) @ x.T"), "an array (mine.py:3) holds NaN, first at [0, 0]",
         "look at mine.py:3"),
        (PLAIN.replace("rand(4, 3)", "rand(1, 3)"), "x holds one token. Its one weight is 1", "give x more rows"),
        (PLAIN.partition("c =")[0], "it makes weights (w, mine.py:4), and no context vectors", "qkv explain mine.py"),
        (PLAIN.partition("w =")[0], "it makes scores (s, mine.py:3), and no weights of them", "qkv explain mine.py"),
        ("import numpy as np\nx = np.eye(3) + 1\n", "no product of tokens with tokens", "qkv explain mine.py"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(judge: Callable[[str], Report], source: str, why: str, hint: str) -> None:
    report = judge(source)
    assert report.verdict is Verdict.UNDECIDED
    assert why in report.why
    assert hint in report.hint
