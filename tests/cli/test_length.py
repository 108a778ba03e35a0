"""``--length`` and ``--dtype`` at the command line, and Ctrl-C while a long sequence is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import environment

Qkv = Callable[..., subprocess.CompletedProcess[str]]

INTERRUPTING = """
import contextlib, os, signal, sys
from qkv.cli import progress

@contextlib.contextmanager
def bar(words):
    told = []
    def advance(share):
        told.append(share)
        if len(told) == 2:
            os.kill(os.getpid(), signal.SIGINT)
    yield advance

progress.progress_bar = bar
sys.argv = ["qkv", *sys.argv[1:]]
from qkv.cli import main
main()
"""


def test_a_long_sequence_is_one_more_probe(qkv: Qkv) -> None:
    done = qkv("check", "right.py", "--heads", "2", "--length", "1000", "--dtype", "float32", "--format", "json")
    report = json.loads(done.stdout)
    assert (report["verdict"], done.returncode) == ("right", 0)
    assert report["candidate"]["dtype"] == "float32"
    assert report["probes"][-1]["name"] == "length 1000"
    assert report["probes"][-1]["note"] == "2,000 rows"
    assert done.stderr == ""


def test_a_precision_that_numpy_lacks_is_told(qkv: Qkv) -> None:
    done = qkv("check", "right.py", "--dtype", "bfloat16")
    assert done.returncode == 4
    assert "NumPy has no bfloat16" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interruption_leaves_what_is_known(files: Path) -> None:
    options = ["check", "right.py", "--heads", "3", "--length", "700", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING, *options],
        cwd=files,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 130
    assert done.stderr == "interrupted\n"
    assert report["verdict"] == "undecided"
    assert report["why"] == "interrupted: 33 % of its rows at 700 tokens were judged, and are right"
