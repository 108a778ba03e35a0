"""The README stays true to what the tool prints. (That its code runs is tested by the conftest.py of the root.)"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_readme_opens_with_a_wrong_attention_and_its_report(tmp_path: Path) -> None:
    from qkv.adapters.host import Host
    from qkv.debugger import judge
    from qkv.request import Request

    text = (ROOT / "README.md").read_text()
    file = tmp_path / "attention.py"
    file.write_text(BLOCK.findall(text)[0])
    report = judge(Request(target=str(file)), Host())
    fault, first = report.faults[0], report.first_disagreement
    assert report.verdict == "wrong"
    assert f"fault     {fault.id}  {fault.title}" in text
    assert fault.repair in text
    assert report.spread in text
    assert first is not None
    assert f"expected {first.expected:.4f}, got {first.got:.4f}" in text


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
