"""Workflow commands: what is on each line, and that nothing a candidate says can end it or begin another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from qkv.report import CandidateWords, Report, Verdict
from qkv.report.document import Patch
from qkv.report.github import to_github

COMMAND = re.compile(r"::(error|warning|notice) ([^\n]*?)::([^\n]*)\n")


def read(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Each command as GitHub's runner takes it apart."""
    found = []
    while match := COMMAND.match(text):
        level, said, message = match.groups()
        properties = dict(one.split("=", 1) for one in said.split(","))
        found.append((level, {name: unescaped(value) for name, value in properties.items()}, unescaped(message)))
        text = text[match.end() :]
    assert text == ""
    return found


def unescaped(text: str) -> str:
    for escape, character in {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}.items():
        text = text.replace(escape, character)
    return text


def test_a_wrong_attention(report: Report, snapshot: SnapshotAssertion) -> None:
    assert to_github(report) == snapshot


def test_each_fault_is_an_error_on_the_lines_that_make_it(report: Report) -> None:
    commands = read(to_github(report))
    assert [level for level, _, _ in commands] == ["error", "error"]
    assert commands[0][1] == {
        "file": "models/my attention.py",
        "line": "7",
        "endLine": "8",
        "title": "qkv scale-missing",
    }
    assert "expected 0.2500, got -1.5000" in commands[0][2]
    assert "write instead:\na = 1\nb = 2\n" in commands[0][2]


def test_a_change_of_the_own_lines_stands_in_place_of_the_usual_repair(report: Report) -> None:
    diff = "--- a.py\n+++ a.py\n@@ -7 +7 @@\n-old\n+new\n"
    patched = replace(report, patch=Patch("a.py", 7, "old", "new", diff))
    message = read(to_github(patched))[0][2]
    assert f"it is right with this change:\n{diff}" in message
    assert "write instead" not in message


@pytest.mark.parametrize(
    ("verdict", "level", "title"),
    [
        (Verdict.RIGHT, "notice", "right"),
        (Verdict.WRONG, "error", "unexplained"),
        (Verdict.UNDECIDED, "warning", "undecided"),
        (Verdict.FAILED, "error", "could-not-be-run"),
    ],
)
def test_without_a_fault_the_verdict_is_said_at_the_definition(
    report: Report, verdict: Verdict, level: str, title: str
) -> None:
    bare = replace(report, verdict=verdict, faults=[], line=None, why="because")
    ((said, properties, message),) = read(to_github(bare))
    assert said == level
    assert properties["title"] == f"qkv {title}"
    assert (properties["file"], properties["line"]) == ("models/my attention.py", "4")
    assert "because" in message


EVIL = "100%: a,b\r\n::error file=x::y\nü \x1b[31m\x00%0A::"


def test_what_a_candidate_says_stays_within_its_command(folder: Path) -> None:
    ((_, properties, message),) = read(
        to_github(Report(Verdict.FAILED, CandidateWords("f", "a,b:c%.py", 3), why=EVIL, detail=EVIL))
    )
    assert properties["file"] == "models/a,b:c%.py"
    assert "100%: a,b\n::error file=x::y\nü [31m%0A::" in message


def test_paths_are_told_from_the_working_directory_where_there_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "plain"
    here.mkdir()
    monkeypatch.chdir(here)
    words = [CandidateWords("f", name) for name in ("a.py", "../b.py", "")]
    said = [read(to_github(Report(Verdict.FAILED, one)))[0][1].get("file") for one in words]
    assert said == ["a.py", (tmp_path / "b.py").as_posix(), None]


@pytest.mark.parametrize(
    ("why", "detail", "line"),
    [
        ("models/mine.py:9 is not Python: invalid syntax", "def (\n    ^", "9"),
        ("calling f took longer than 20 s and was stopped; it stood at mine.py:5: while True: pass (in f)", "", "5"),
        (
            "calling f raised KeyError: 'a'",
            'File "{file}", line 12, in f\n    g()\nFile "{file}", line 4, in g\n    a',
            "4",
        ),
        ("calling f raised KeyError: 'a'", 'File "/elsewhere/mine.py", line 4, in g\n    a', "3"),
    ],
)
def test_what_failed_is_shown_on_the_line_where_it_did(why: str, detail: str, line: str) -> None:
    words = CandidateWords("f", "models/mine.py", 3)
    told = detail.replace("{file}", str(Path("models/mine.py").resolve()))
    ((_, properties, _),) = read(to_github(Report(Verdict.FAILED, words, why=why, detail=told)))
    assert (properties["file"], properties["line"]) == ("models/mine.py", line)
