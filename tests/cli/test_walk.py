"""``qkv walk`` writes a page, over its own older ones and over nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from qkv.cli.walk import command

Qkv = Callable[..., subprocess.CompletedProcess[str]]


def test_a_page_is_written_and_named(qkv: Qkv, files: Path) -> None:
    done = qkv("walk")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("13 steps on 3 tokens of 2 numbers.\n  page      walk.html\n")
    html = (files / "walk.html").read_text(encoding="utf-8")
    assert "journey" in html
    for sentence in (["one small step"], ["one", "tiny", "step"]):
        assert qkv("walk", *sentence, "--dim", "2", "--heads", "3", "--seed", "4").returncode == 0
        assert " ".join(sentence).split()[1] in (files / "walk.html").read_text(encoding="utf-8")


def test_a_file_that_is_no_page_of_qkv_is_left_alone(qkv: Qkv, files: Path) -> None:
    before = (files / "right.py").read_text(encoding="utf-8")
    done = qkv("walk", "--output", "right.py")
    assert done.returncode == 2
    assert "--output is 'right.py': that file is no page of qkv, and is left as it is" in done.stderr
    assert (files / "right.py").read_text(encoding="utf-8") == before


def test_it_is_opened_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    done = CliRunner().invoke(command, ["--open"])
    assert done.exit_code == 0
    assert opened == [(tmp_path / "walk.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda _address: False)
    assert "No browser could be opened." in CliRunner().invoke(command, ["--open"]).output


def test_bad_usage_is_told(qkv: Qkv) -> None:
    for arguments, says in (
        (("--output", "no/where.html"), "there is no folder no. Make it first"),
        (("word",), "the sentence has 1 word: the walk takes 2 to 12 tokens"),
        (("1 0; 0",), "the rows have 2, 1 numbers"),
        (("--dim", "2"), '--dim is for a sentence: qkv walk "your own sentence" --dim 2'),
        (("--heads", "5"), "5 is not in the range 1<=x<=4"),
    ):
        done = qkv("walk", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
