"""Masks that a script makes: those that it does not use, and those that cannot be meant as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qkv.report import Report, Verdict

NUMPY = """\
import numpy as np
x = np.random.default_rng(3).normal(size=(5, 3))
i, j = np.arange(5)[:, None], np.arange(5)[None, :]
"""
MIXED = """\
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
context = weights @ x
"""
SCORES = "scores = x @ x.T\n"
WINDOW = "near = (j <= i) & (i - j < 3)\n"
DOCUMENTS = "doc_ids = np.array([0, 0, 1, 1, 1])\nsame = doc_ids[:, None] == doc_ids\n"
APPLIED = "scores = np.where(same, scores, -np.inf)\n"

TORCH = """\
import torch
import torch.nn.functional as F
torch.manual_seed(3)
q, k, v = torch.randn(3, 2, 5, 4)
"""
HELPER = """\
def attention(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    return F.softmax(scores, dim=-1) @ v
"""
LENGTHS = "lengths = torch.tensor([3, 4])\nis_token = torch.arange(5) < lengths[:, None]\n"
PADDED = "scores = q @ k.mT / 2\nscores = scores.masked_fill({}, -torch.inf)\ncontext = scores.softmax(-1) @ v\n"
MODULE = """\
class Causal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)))
    def forward(self, q, k, v):
        return (q @ k.mT / 2).softmax(-1) @ v
context = Causal()(q, k, v)
"""

SLIPS = {
    "a window that nothing reads": (
        NUMPY + WINDOW + SCORES + MIXED, "mask-not-applied", "scores = np.where(near == 0, -np.inf, scores)",
    ),
    "scores with a window that nothing is made of": (
        NUMPY + WINDOW + SCORES + "seen = np.where(near, scores, -np.inf)\n" + MIXED, "mask-not-applied",
        "weights = np.exp(seen) / np.exp(seen).sum(-1, keepdims=True)",
    ),
    "a mask that a helper is not handed, beside a call that is masked": (
        TORCH + HELPER + "causal_mask = torch.tril(torch.ones(5, 5))\nmine = attention(q, k, v)\n"
        "theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
        "same = torch.allclose(mine, theirs)\n", "mask-not-applied",
        "mine = attention(q, k, v, mask=causal_mask)",
    ),
    "padding that nothing reads": (
        TORCH + LENGTHS.replace("is_token", "pad_mask") + "s = q @ k.mT / 2\ncontext = s.softmax(-1) @ v\n",
        "mask-not-applied", "context = s.masked_fill(pad_mask[:, None, :] == 0, -torch.inf).softmax(-1) @ v",
    ),
    "a buffer that nothing reads": (
        TORCH + MODULE, "mask-not-applied",
        "return (q @ k.mT / 2).masked_fill(self.mask == 0, -torch.inf).softmax(-1) @ v",
    ),
    "documents in an order": (
        NUMPY + DOCUMENTS.replace("==", ">=") + SCORES + APPLIED + MIXED, "documents-leak",
        "same = doc_ids[:, None] == doc_ids",
    ),
    "other documents": (
        NUMPY + DOCUMENTS + SCORES + APPLIED.replace("same, scores, -np.inf", "same, -np.inf, scores") + MIXED,
        "mask-inverted", "scores = np.where(~same, -np.inf, scores)",
    ),
    "padding for tokens": (
        TORCH + LENGTHS + PADDED.format("is_token[:, None, :]"), "mask-inverted",
        "scores = scores.masked_fill(~is_token[:, None, :], -torch.inf)",
    ),
    "the rows of padding": (
        TORCH + LENGTHS + PADDED.format("~is_token[:, :, None]"), "padding-on-queries",
        "scores = scores.masked_fill(~is_token[:, None, :], -torch.inf)",
    ),
}  # fmt: skip

RIGHT = {
    "a window": NUMPY + WINDOW + SCORES + "scores = np.where(near, scores, -np.inf)\n" + MIXED,
    "documents": NUMPY + DOCUMENTS + SCORES + APPLIED + MIXED,
    "causal within documents": NUMPY + DOCUMENTS + SCORES + APPLIED.replace("same", "same & (j <= i)") + MIXED,
    "padding": TORCH + LENGTHS + PADDED.format("~is_token[:, None, :]"),
    "a mask that is handed over": TORCH + HELPER + "look = torch.ones(5, 5).tril()\nc = attention(q, k, v, look)\n",
    "the mask that is used, once more": NUMPY + SCORES + "mask = np.tri(5)\nscores[j > i] = -np.inf\n" + MIXED,
    "the mask that is used in other words, after a mix without": NUMPY + SCORES + MIXED
    + "mask = np.tri(5)\nhidden = np.where(j > i, -np.inf, scores)\n" + MIXED.replace("scores", "hidden"),
    "positions in an order": NUMPY + "p = np.arange(5)\nahead = p[:, None] < p\n" + SCORES
    + "scores = np.where(ahead, -np.inf, scores)\n" + MIXED,
}  # fmt: skip

OPEN = {
    "a window that nothing reads beside a causal mask": (
        NUMPY + WINDOW + SCORES + "scores = np.where(j <= i, scores, -np.inf)\n" + MIXED,
        "near is a mask that is made, and nothing reads it",
    ),
    "a helper that nothing calls": (
        NUMPY + "def causal_mask(n):\n    return np.tri(n) > 0\n" + SCORES + MIXED,
        "causal_mask() makes a mask, and nothing calls it",
    ),
}


@pytest.mark.parametrize(("source", "fault", "after"), SLIPS.values(), ids=list(SLIPS))
def test_a_mask_is_told_and_mended(source: str, fault: str, after: str, report_on: Callable[[str], Report]) -> None:
    report = report_on(source)
    assert (report.verdict, [one.id for one in report.faults]) == (Verdict.WRONG, [fault])
    assert report.patch is not None
    assert report.patch.after.strip() == after


def test_what_is_expected_under_a_mask_that_is_not_causal_is_what_that_mask_gives(
    report_on: Callable[[str], Report],
) -> None:
    source = NUMPY + "near = np.abs(i - j) < 2\n" + SCORES + MIXED
    report = report_on(source)
    assert report.held_to.endswith("the mask that it makes")
    expected = next(row.expected for row in report.rows if "weights of token 0" in row.title)
    assert (expected > 0).tolist() == [True, True, False, False, False]
    assert expected.sum() == pytest.approx(1)


@pytest.mark.parametrize("source", RIGHT.values(), ids=list(RIGHT))
def test_a_mask_that_is_used_is_right(source: str, report_on: Callable[[str], Report]) -> None:
    report = report_on(source)
    assert (report.verdict, report.why) == (Verdict.RIGHT, "")


@pytest.mark.parametrize(("source", "why"), OPEN.values(), ids=list(OPEN))
def test_a_mask_that_may_be_meant_for_nothing_is_said(
    source: str, why: str, report_on: Callable[[str], Report]
) -> None:
    report = report_on(source)
    assert (report.verdict, report.why) == (Verdict.UNDECIDED, why)
