"""What a repair of a script changes: the smallest part of the user's own line, in the names that stand there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qkv.report import Report, Verdict

NUMPY = """\
import numpy as np
rng = np.random.default_rng(4)
tokens = rng.normal(size=(6, 5))
"""
PROJECTED = """\
W_q, W_k, W_v = (rng.normal(size=(5, 3)) for _ in range(3))
queries, keys, values = tokens @ W_q, tokens @ W_k, tokens @ W_v
"""
TORCH = """\
import torch
torch.manual_seed(4)
tokens = torch.randn(6, 5)
"""


IN_HELPERS = {
    "sums lose their axis, for rows and for one row": (
        NUMPY + "def shares(x):\n    raised = np.exp(x - np.max(x))\n    return raised / raised.sum(axis=-1)\n"
        "one = shares(tokens @ tokens[2]) @ tokens\nevery = shares(tokens @ tokens.T) @ tokens\n",
        "softmax-over-queries",
        "    return raised / raised.sum(axis=-1, keepdims=True)",
    ),
    "sums in a variable": (
        TORCH + "def weights_of(s):\n    e = s.exp()\n    total = e.sum(1)\n    return e / total\n"
        "context = weights_of(tokens @ tokens.T / 3) @ tokens\n",
        "softmax-over-queries",
        "    total = e.sum(1, keepdim=True)",
    ),
    "a helper is told the wrong axis": (
        NUMPY + "def normed(x, axis):\n    e = np.exp(x)\n    return e / e.sum(axis=axis, keepdims=True)\n"
        "context = normed(tokens @ tokens.T, axis=0) @ tokens\n",
        "softmax-over-queries",
        "context = normed(tokens @ tokens.T, axis=-1) @ tokens",
    ),
    "scores are scaled where they are made, not in the softmax": (
        NUMPY + PROJECTED + "def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n"
        "scores = queries @ keys.T\ncontext = softmax(scores) @ values\n",
        "scale-missing",
        "context = softmax(scores / keys.shape[-1] ** 0.5) @ values",
    ),
    "a mask is applied where the scores are made": (
        NUMPY + "def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n"
        "scores = tokens @ tokens.T\nfuture_mask = np.triu(np.ones((6, 6)), 1) > 0\n"
        "context = softmax(scores) @ tokens\n",
        "mask-not-applied",
        "context = softmax(np.where(future_mask, -np.inf, scores)) @ tokens",
    ),
}

KEPT = {
    "an in-place division": (
        NUMPY
        + "s = tokens @ tokens.T\nw = np.exp(s - s.max(axis=1, keepdims=True))\nw /= w.sum(axis=0)\nc = w @ tokens\n",
        "softmax-over-queries",
        "w /= w.sum(axis=-1, keepdims=True)",
    ),
    "weights that were never divided": (
        TORCH + "w = torch.exp(tokens @ tokens.T)\nc = w @ tokens\n",
        "rows-not-one",
        "w = w / w.sum(dim=-1, keepdim=True)",
    ),
    "a mask after softmax": (
        TORCH + "w = torch.softmax(tokens @ tokens.T, -1)\nw = w * torch.tril(torch.ones(6, 6))\nc = w @ tokens\n",
        "mask-after-softmax",
        "w = w / w.sum(dim=-1, keepdim=True)",
    ),
    "a fill": (
        NUMPY
        + "s = np.where(np.tri(6) > 0, tokens @ tokens.T, -2.0)\nw = np.exp(s) / np.exp(s).sum(1, keepdims=True)\n"
        "c = w @ tokens\n",
        "mask-fill-too-small",
        "s = np.where(np.tri(6) > 0, tokens @ tokens.T, -np.inf)",
    ),
}

USES = {
    "the weights before they were divided": (
        TORCH + "raised = torch.exp(tokens @ tokens.T)\nshares = raised / raised.sum(-1, keepdim=True)\n"
        "c = raised @ tokens\n",
        "rows-not-one",
        "c = shares @ tokens",
    ),
    "the scores before they were scaled": (
        NUMPY
        + PROJECTED
        + "s = queries @ keys.T\nscaled = s / np.sqrt(3)\nm = s.max(-1, keepdims=True)\ne = np.exp(s - m)\n"
        "c = (e / e.sum(-1, keepdims=True)) @ values\n",
        "scale-missing",
        "e = np.exp(scaled - m)",
    ),
    "the scores before they were masked": (
        TORCH + "s = tokens @ tokens.T\nhidden = s.masked_fill(torch.ones(6, 6).triu(1) == 1, float('-inf'))\n"
        "c = s.softmax(-1) @ tokens\n",
        "mask-not-applied",
        "c = hidden.softmax(-1) @ tokens",
    ),
    "masked scores that are kept nowhere": (
        TORCH + "s = tokens @ tokens.T\ns.masked_fill(torch.ones(6, 6).triu(1) == 1, float('-inf'))\n"
        "c = s.softmax(-1) @ tokens\n",
        "mask-not-applied",
        "s = s.masked_fill(torch.ones(6, 6).triu(1) == 1, float('-inf'))",
    ),
    "a mask on scores that others were made of before": (
        NUMPY + PROJECTED + "s = queries @ keys.T\nt = s / 3**0.5\ns[np.triu_indices(6, 1)] = -np.inf\n"
        "w = np.exp(t) / np.exp(t).sum(-1, keepdims=True)\nmask = np.tri(6)\nc = w @ values\n",
        "mask-not-applied",
        "t[np.triu_indices(6, 1)] = -np.inf",
    ),
}


@pytest.mark.parametrize(("source", "fault", "after"), {**IN_HELPERS, **KEPT, **USES}.values(),
                         ids=[*IN_HELPERS, *KEPT, *USES])  # fmt: skip
def test_a_line_is_kept_but_for_what_is_wrong_in_it(
    source: str, fault: str, after: str, report_on: Callable[[str], Report]
) -> None:
    report = report_on(source)
    assert report.verdict is Verdict.WRONG
    assert report.faults[0].id == fault
    assert report.patch is not None
    assert report.patch.after == after
    assert len([line for line in report.patch.diff.splitlines()[2:] if line.startswith("-")]) <= 1


@pytest.mark.parametrize(("source", "fault", "after"), USES.values(), ids=list(USES))
def test_the_use_of_what_is_old_is_blamed(
    source: str, fault: str, after: str, report_on: Callable[[str], Report]
) -> None:
    report = report_on(source)
    assert report.line is not None
    assert report.patch is not None
    assert report.line.line == report.patch.line


def test_weights_that_are_right_are_not_blamed(report_on: Callable[[str], Report]) -> None:
    source = TORCH + "w = torch.softmax(tokens @ tokens.T * 2, -1)\nc = w.T @ tokens\n"
    report = report_on(source.replace(" * 2", ""))
    assert [fault.id for fault in report.faults] == ["weights-transposed"]
    assert report.spread == "every row is wrong, though the weights of token 0 are right"
    assert report.first_disagreement is not None
    assert report.first_disagreement.key is None
    assert [pair.title for pair in report.rows] == ["context of token 0, computed alone and in the script"]
