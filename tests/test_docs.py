"""The README stays true to what the tool prints, and the Python on every page runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "DESIGN", "CONTRIBUTING")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_readme_opens_with_a_wrong_attention_and_its_report(tmp_path: Path) -> None:
    from qkv.adapters.host import Host
    from qkv.debugger import judge
    from qkv.request import Request

    text = (ROOT / "README.md").read_text()
    file = tmp_path / "attention.py"
    file.write_text(BLOCK.findall(text)[0])
    report = judge(Request(target=str(file), patch_seconds=10.0), Host())
    fault, first = report.faults[0], report.first_disagreement
    assert report.verdict == "wrong"
    assert f"fault     {fault.id}  {fault.title}" in text
    assert report.line is not None
    assert f"line      attention.py:{report.line.line}\n              {report.line.code}" in text
    assert report.patch is not None
    assert f"- {report.patch.before.strip()}\n              + {report.patch.after.strip()}" in text
    assert report.spread in text
    assert first is not None
    assert f"expected {first.expected:.4f}, got {first.got:.4f}" in text


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path) -> None:
    for block in Sybil(parsers=[PythonCodeBlockParser(), SkipParser()]).parse(page):
        block.evaluate()


CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_page_on_ci_knows_every_form() -> None:
    from qkv.cli.forms import DOCUMENTS, FORMS

    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", CI, re.MULTILINE))
    assert list(rows) == list(FORMS)
    assert [form for form, row in rows.items() if "one document" in row] == list(DOCUMENTS)


def test_the_settings_on_the_page_on_ci_can_be_read_and_call_what_there_is() -> None:
    import yaml

    from qkv.cli.check import command
    from qkv.cli.forms import FORMS

    workflow, hooks = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", CI, re.DOTALL | re.M))
    assert any("qkv check" in step.get("run", "") for step in workflow["jobs"]["qkv"]["steps"])
    assert hooks["repos"][0]["hooks"][0]["entry"] == "qkv check"
    flags = {flag for parameter in command.params for flag in parameter.opts}
    for line in re.findall(r"qkv check ([^`>|\"\n]*)", CI):
        assert {word for word in line.split() if word.startswith("--")} <= flags, line
        assert all(form in FORMS for form in re.findall(r"--format (\w+)", line)), line


def test_the_problem_matcher_reads_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qkv.report import CandidateWords, NamedFault, Report, Verdict
    from qkv.report.github import to_github

    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```json\n(.*?)^```", CI, re.DOTALL | re.M)
    matcher = json.loads(block)["tasks"][0]["problemMatcher"]
    fault = NamedFault("scale-missing", "scale", "no scale: none", "Why.", "a = 1", "", 0.0)
    report = Report(Verdict.WRONG, CandidateWords("f", "a.py", 4), faults=[fault])
    match = re.match(matcher["pattern"]["regexp"], to_github(report).rstrip("\n"))
    assert match is not None
    assert match.groups() == ("error", "a.py", "4", "4", "scale-missing", "f: no scale: none")
    assert re.match(matcher["background"]["beginsPattern"], "12:00:00  checking a.py")
    assert re.match(matcher["background"]["endsPattern"], "12:00:00  waiting for changes to a.py")
