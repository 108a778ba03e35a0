"""A repair leaves a candidate callable in every way that it was: without its mask too, where it need not be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.debugger import judge
from qkv.report import Verdict
from qkv.request import Request

FUNCTION = '''import torch


def attention(query, key, value, mask=None):
    """mask: True may attend."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    weights = scores.softmax(dim=-1)
    return weights @ value
'''

MODULE = """from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, attn_mask=None):
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in self.projections())
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def projections(self):
        return self.q_proj, self.k_proj, self.v_proj
"""


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name"), [(FUNCTION, "attention"), (MODULE, "Attention")])
def test_a_mask_that_is_applied_may_still_be_left_out(text: str, name: str, tmp_path: Path) -> None:
    (file := tmp_path / "candidate.py").write_text(text)
    report = judge(Request(str(file), {"causal": True}, patch_seconds=30.0))
    assert report.verdict is Verdict.WRONG
    assert report.patch is not None
    patched: dict[str, Any] = {}
    exec(report.patch.edited, patched)  # noqa: S102 - our own text
    x = torch.ones(1, 2, 5, 8)
    candidate = patched[name] if name == "attention" else patched[name](8, 2)
    assert (candidate(x, x, x) if name == "attention" else candidate(x[:, 0])).isfinite().all()


def test_a_failure_of_the_search_takes_no_verdict_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("qkv.debugger.patch_for", failing)
    path = tmp_path / "attention.py"
    path.write_text("def attention(query, key, value):\n    return (query @ key.mT).softmax(dim=-1) @ value\n")
    report = judge(Request(f"{path}:attention", {"num_heads": 2}, patch_seconds=1.0))
    assert report.verdict is Verdict.WRONG
    assert report.assumptions[-1] == (
        "qkv failed while it looked for a repair (RecursionError: too deep); please report it"
    )
