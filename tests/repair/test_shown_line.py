"""The line that a repair shows to be wrong, beside the one that watching has blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.adapters.host import Host
from qkv.debugger import judge
from qkv.repair import line_shown_by, patch_between
from qkv.report import Patch, SourceLine, Verdict
from qkv.request import Request

SOURCE = """def attention(q, k, v):
    scale = 2.0
    scores = (
        q @ k.T
    ) * scale

    weights = softmax(scores)
    return weights @ v
"""


def patched(tmp_path: Path, *changes: tuple[str, str]) -> Patch:
    path, edited = tmp_path / "mine.py", SOURCE
    path.write_text(SOURCE)
    for old, new in changes:
        edited = edited.replace(old, new)
    return patch_between(str(path), SOURCE.encode(), edited.encode())


def test_where_none_is_blamed_it_is_the_one_that_changes(tmp_path: Path) -> None:
    shown = line_shown_by(patched(tmp_path, ("2.0", "0.5")), None)
    assert shown is not None
    assert (shown.line, shown.until, shown.code) == (2, None, "scale = 2.0")


def test_what_is_put_in_belongs_between_two_lines(tmp_path: Path) -> None:
    shown = line_shown_by(patched(tmp_path, ("    weights", "    scores = masked(scores)\n    weights")), None)
    assert shown is not None
    assert (shown.line, shown.until) == (5, 7)


@pytest.mark.parametrize(
    ("line", "until", "confirmed", "told"),
    [
        (7, None, False, 4),  # a guess, and another text elsewhere is right
        (7, None, True, 7),  # what it makes is just what the fault makes
        (3, None, False, 3),  # the same statement
        (2, None, False, 2),  # a repair further down may only undo it
        (7, 2, False, 7),  # between its ends
    ],
)
def test_a_guess_gives_way_to_what_was_shown(tmp_path: Path, line, until, confirmed, told) -> None:
    patch = patched(tmp_path, ("q @ k.T", "k @ q.T"))
    shown = line_shown_by(patch, SourceLine(patch.path, line, "", "", until, confirmed))
    assert shown is not None
    assert shown.line == told


LOOPS = """import numpy as np


def attention(q, k, v):
    out = np.zeros(q.shape[:-1] + v.shape[-1:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores = np.zeros(i + 1)
                for j in range(i + 1):
                    scores[j] = float(q[b, h, i] @ k[b, h, j]) * q.shape[-1] ** 0.5
                weights = np.exp(scores - scores.max())
                out[b, h, i] = weights / weights.sum() @ v[b, h, : i + 1]
    return out
"""


@pytest.mark.slow
def test_a_line_that_cannot_be_watched_is_named_by_its_repair(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(LOOPS)
    given = {"num_heads": 2, "causal": True}
    unmended = judge(Request(f"{path}:attention", given), Host())
    assert (unmended.verdict, unmended.line) == (Verdict.WRONG, None)
    mended = judge(Request(f"{path}:attention", given, patch_seconds=30.0), Host())
    assert mended.line is not None
    assert (mended.line.line, mended.line_why) == (11, "")
