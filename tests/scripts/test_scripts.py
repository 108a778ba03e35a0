"""Plain scripts: right ones in many ways of writing, and the slips that learners make, each on its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from qkv.adapters.process import HostProcess
from qkv.adapters.texts import script_of, text_of
from qkv.report import Report, Verdict
from qkv.report.terminal import as_text
from qkv.scripts import explained
from qkv.scripts.slips import slip_of

HERE = Path(__file__).parent
RIGHT = sorted((HERE / "right").glob("*.py"))
WRONG = sorted((HERE / "wrong").glob("*.py"))


@pytest.fixture(scope="module")
def host() -> Iterator[HostProcess]:
    """One process for all scripts: they import torch once."""
    with HostProcess() as host:
        yield host


def report_on(path: Path, host: HostProcess) -> Report:
    return explained(text_of(path.name), host, "").report


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_script_is_right(path: Path, host: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    report = report_on(path, host)
    assert (report.verdict, [fault.id for fault in report.faults]) == (Verdict.RIGHT, [])
    assert script_of(path.name) is not None


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_slip_is_named_on_its_line(
    path: Path, host: HostProcess, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(path.parent)
    said = re.match(r"# (\S+) in line (\d+)", path.read_text(encoding="utf-8"))
    assert said is not None
    report = report_on(path, host)
    assert report.line is not None
    assert ([fault.id for fault in report.faults], report.line.line) == ([said[1]], int(said[2]))
    assert report.verdict is Verdict.WRONG
    assert as_text(report) == snapshot


def test_what_is_to_be_written_instead_mends_the_script(host: HostProcess, tmp_path: Path) -> None:
    """Where what is said to be written is a whole line, the script is right with it in the place of the wrong one."""
    mended = set()
    for path in WRONG:
        text = text_of(str(path))
        report = explained(text, host, "").report
        (fault,) = report.faults
        assert report.line is not None
        code = text.lines[report.line.line - 1]
        target = code.partition(" = ")[0]
        if not fault.repair.startswith(target.strip()) or "#" in fault.repair or "\n" in fault.repair:
            continue
        indent = code[: len(code) - len(code.lstrip())]
        lines = text.lines
        lines[report.line.line - 1] = indent + fault.repair
        (tmp_path / path.name).write_text("\n".join(lines), encoding="utf-8")
        again = explained(text_of(str(tmp_path / path.name)), host, "").report
        assert again.verdict is Verdict.RIGHT, (path.name, fault.repair, again.why, again.faults)
        mended.add(path.name)
    assert len(mended) >= 31, sorted(path.name for path in WRONG if path.name not in mended)


def test_each_slip_has_words_of_its_own() -> None:
    for path in WRONG:
        said = re.match(r"# (\S+) in line", path.read_text(encoding="utf-8"))
        assert said is not None
        slip = slip_of(said[1])
        assert slip.title
        assert slip.explanation
        assert slip.stage
