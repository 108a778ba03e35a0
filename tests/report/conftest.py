"""A report on a wrong attention, as a judge would make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.report import CandidateWords, Disagreement, NamedFault, ProbeResult, Report, SourceLine, Verdict
from qkv.spec import AttentionSpec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a repository's folder with one more folder in it."""
    inside = tmp_path / "repository" / "models"
    inside.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(inside)
    return inside


@pytest.fixture
def report(folder: Path) -> Report:
    return Report(
        Verdict.WRONG,
        CandidateWords("attention", "my attention.py", 4, "function of query, key and value", "numpy", "float64"),
        spec=AttentionSpec(num_heads=2, head_dim=8),
        first_disagreement=Disagreement("ordinary", 0, 1, 2, None, 3, 0.25, -1.5),
        spread="every row is wrong",
        only_when="key_len > 64",
        faults=[
            NamedFault("scale-missing", "scale", "no scale", "The scores grow.", "\n    a = 1\n    b = 2\n", "", 0.0),
            NamedFault("mask-late", "mask", "masked too late", "Rows sum to less.", "c = 3", "by zeros", 0.0),
        ],
        alternatives=[NamedFault("scale-ignored", "scale", "ignored", "", "", "", 0.0)],
        probes=[
            ProbeResult("ordinary", "", False, 0.5, 1e-5),
            ProbeResult("size", "", False, None, None, "31 sizes"),
            ProbeResult("one-token", "", True, 1e-7, 1e-5),
            ProbeResult("chunked", "", None, None, None, "it takes no cache"),
        ],
        repeat="qkv check 'my attention.py'",
        line=SourceLine("my attention.py", 7, "scores = query @ (\n    key.T)", "seen while it ran"),
    )
