"""Options that nobody declared: undecided with the flag that declares them, wrong only against what was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qkv.debugger import check
from qkv.report import Report, Verdict

TEXT = '''import numpy as np


def {name}(q, k, v):
    """{doc}"""
    length, dim = q.shape[-2:]
    i, j = np.arange(length)[:, None], np.arange(length)[None, :]
    scores = q @ np.swapaxes(k, -1, -2) * {scale}
    scores = {scores}
    scores = np.where({mask}, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
'''

PLAIN = {"name": "attention", "doc": "Causal.", "scale": "dim**-0.5", "scores": "scores", "mask": "j <= i"}


def judged(folder: Path, spec: dict[str, Any] | None = None, **parts: str) -> Report:
    text = TEXT.format(**{**PLAIN, **parts})
    path = folder / "candidate.py"
    path.write_text(text)
    return check(f"{path}:{parts.get('name', 'attention')}", spec)


WINDOW = "(j <= i) & (i - j < 4)"

OPTIONS = [
    ({"mask": WINDOW}, "a window of 4 keys", "--window 4", {"causal": True, "window": 4}),
    ({"mask": "(j <= i) | (j < 3)"}, "a prefix of 3 tokens", "--prefix 3", {"causal": True, "prefix": 3}),
    ({"mask": "(j <= i) & ((i - j) % 2 == 0)"}, "one key in 2", "dilated(2)", {"mask": "causal & dilated(2)"}),
    ({"scores": "50 * np.tanh(scores / 50)"}, "a softcap of 50", "--softcap 50", {"softcap": 50.0}),
]


@pytest.mark.parametrize(("parts", "words", "flag", "spec"), OPTIONS, ids=[words for _, words, *_ in OPTIONS])
def test_an_option_that_nothing_declares_is_asked_for(
    parts: dict[str, str], words: str, flag: str, spec: dict[str, Any], tmp_path: Path
) -> None:
    report = judged(tmp_path, **parts)
    assert report.verdict is Verdict.UNDECIDED
    assert words in report.why
    assert flag in report.hint
    assert report.patch is None
    assert judged(tmp_path, spec, **parts).verdict is Verdict.RIGHT


def test_a_window_against_a_mask_that_was_said_is_wrong(tmp_path: Path) -> None:
    report = judged(tmp_path, {"causal": True}, mask=WINDOW)
    assert report.verdict is Verdict.WRONG
    assert [fault.id for fault in report.faults] == ["window-layers-swapped"]


@pytest.mark.parametrize(
    "scale", ["length**-0.5", "(q.shape[1] if q.ndim == 4 else 1) ** -0.5", "0.3"], ids=["length", "heads", "constant"]
)
def test_another_scale_is_a_slip(scale: str, tmp_path: Path) -> None:
    report = judged(tmp_path, {"num_heads": 6, "head_dim": 8}, scale=scale)
    assert (report.verdict, [fault.id for fault in report.faults]) == (Verdict.WRONG, ["scale-other-constant"])


def test_a_declared_window_is_held_to(tmp_path: Path) -> None:
    doc = "Causal, with a window of 4."
    assert judged(tmp_path, doc=doc, mask=WINDOW).verdict is Verdict.RIGHT
    report = judged(tmp_path, doc=doc, mask="(j <= i) & (i - j <= 4)")
    assert (report.verdict, [fault.id for fault in report.faults]) == (Verdict.WRONG, ["window-off-by-one"])


def test_a_name_that_speaks_of_a_window_leaves_its_width_open(tmp_path: Path) -> None:
    there = judged(tmp_path, name="sliding_window_attention", mask=WINDOW)
    assert "the name sliding_window_attention speaks of a window" in there.why
    missing = judged(tmp_path, name="sliding_window_attention")
    assert (missing.verdict, missing.hint) == (Verdict.UNDECIDED, "--window 4 judges it with a window of 4 keys")
