"""``--html``: a page beside what is printed, and never in its way."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from qkv.cli.ending import FAILED
from qkv.cli.pages import PageFile, Unwritten, write_page
from qkv.pictures.page_file import write_whole

Qkv = Callable[..., subprocess.CompletedProcess[str]]


def test_the_report_is_printed_and_then_where_the_page_is(qkv: Qkv, files: Path) -> None:
    plain, done = qkv("check", "wrong.py"), qkv("check", "wrong.py", "--html", "report.html")
    assert done.returncode == plain.returncode == 1
    printed = done.stdout.replace("--html report.html", "").replace("  page      report.html\n", "")
    assert [line.rstrip() for line in printed.splitlines()] == plain.stdout.splitlines()
    assert done.stdout.endswith("  page      report.html\n")
    page = (files / "report.html").read_text("utf-8")
    assert "<title>✗ wrong · attention · scale-missing · qkv</title>" in page
    assert "qkv check wrong.py --html report.html" in page
    assert not list(files.glob(".report*"))


def test_stdout_is_left_to_programs(qkv: Qkv, files: Path) -> None:
    done = qkv("check", "right.py", "wrong.py", "missing.py", "--format", "json", "--html", "report.html")
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["right", "wrong", "failed"]
    assert (done.returncode, done.stderr) == (1, "page: report.html\n")
    assert "<title>1 wrong, 1 failed, 1 right · qkv</title>" in (files / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_explain_and_identify_have_pages_too(qkv: Qkv, files: Path) -> None:
    (files / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = qkv("explain", "script.py", "--html", "e.html")
    assert done.returncode == 1
    assert "The code, line by line" in (files / "e.html").read_text("utf-8")
    done = qkv("identify", "right.py:attention", "--html", "i.html", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["known"]) == (0, True)
    assert "<title>✓ read · attention · qkv</title>" in (files / "i.html").read_text("utf-8")


SCRIPT = """\
import numpy as np

inputs = np.array([[0.43, 0.15], [0.55, 0.87], [0.57, 0.85]])
attn_scores = inputs @ inputs.T
attn_weights = np.exp(attn_scores) / np.exp(attn_scores).sum(axis=0)
context = attn_weights @ inputs
"""


def test_a_page_that_can_not_be_written_is_said_before_anything_is_judged(qkv: Qkv, files: Path) -> None:
    done = qkv("check", "hangs.py", "--html", "nowhere/report.html")
    assert done.returncode == 2
    assert "mkdir -p nowhere" in done.stderr
    done = qkv("check", "hangs.py", "--html", "right.py")
    assert done.returncode == 2
    assert "'right.py': that file is no page of qkv" in done.stderr
    assert "def attention" in (files / "right.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "said"),
    [("-", "stdout has the report"), ("folder", "that is a folder"), ("read-only/a.html", "nothing may be written in")],
)
def test_a_place_that_takes_no_page_is_refused(
    given: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "read-only"):
        Path(folder).mkdir()
    may_write = os.access
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "read-only" and may_write(path, mode))
    with pytest.raises(click.UsageError, match=said):
        PageFile().convert(given, None, None)


def test_a_page_goes_over_an_older_one_and_through_a_link_or_is_not_written_at_all(tmp_path: Path) -> None:
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    target.write_text('<meta name="generator" content="qkv">old', encoding="utf-8")
    link.symlink_to(target)
    assert PageFile().convert(str(link), None, None) == link
    write_page(link, "new", "json")
    assert link.is_symlink()
    assert target.read_text("utf-8") == "new"
    with pytest.raises(Unwritten) as error:
        write_page(tmp_path / "gone" / "page.html", "new", "text")
    assert error.value.exit_code == FAILED
    assert {one.name for one in tmp_path.iterdir()} == {"target.html", "link.html"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_and_links_that_lead_nowhere_take_no_page(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for place, said in ((pipe, "that is a device or a pipe"), (loop, "it can't be written")):
        with pytest.raises(click.UsageError, match=said):
            PageFile().convert(str(place), None, None)
    with pytest.raises(OSError, match="is no ordinary file"):
        write_whole(pipe, "new")
    assert pipe.is_fifo()
