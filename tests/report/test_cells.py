"""The line of a notebook's joint source is told as a cell and the line there, and so is its other end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qkv.adapters.texts import Text
from qkv.report import Report, SourceLine
from qkv.report.cells import in_cells


@pytest.mark.parametrize(("until", "told"), [(None, None), (6, 3), (2, None)])
def test_the_other_end_is_told_in_the_same_cell(
    report: Report, tmp_path: Path, until: int | None, told: int | None
) -> None:
    joint = "a\nb\nc\nd\ne\nf\n"
    text = Text("mine.ipynb", tmp_path / "mine.ipynb", joint, joint, cells=(1, 4))
    found = in_cells(replace(report, line=SourceLine(str(text.path), 5, "e", "why", until)), text).line
    assert found == SourceLine("mine.ipynb cell 2", 2, "e", "why", told)
