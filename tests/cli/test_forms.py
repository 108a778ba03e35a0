"""The forms of a report as a pipeline gets them: of one file, of several, of what fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from command_line import environment
from qkv.cli.forms import exit_code_of
from qkv.report import CandidateWords, Report, Verdict

Qkv = Callable[..., subprocess.CompletedProcess[str]]


def test_github(qkv: Qkv) -> None:
    done = qkv("check", "wrong.py", "--format", "github")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("::error file=wrong.py,line=")
    assert ",title=qkv scale-missing::attention: " in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_several_files_are_judged_one_after_another(qkv: Qkv) -> None:
    done = qkv("check", "right.py", "wrong.py", "missing.py", "--format", "json")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["verdict"] for report in reports] == ["right", "wrong", "failed"]
    assert (done.returncode, done.stderr) == (1, "")
    text = qkv("check", "right.py", "missing.py")
    assert text.returncode == 4
    assert "✓ right  attention" in text.stdout
    assert "\n\n! failed  missing.py" in text.stdout


@pytest.mark.slow
def test_several_files_are_one_document(qkv: Qkv) -> None:
    sarif = qkv("check", "wrong.py", "right.py", "raises.py", "--format", "sarif")
    (run,) = json.loads(sarif.stdout)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["scale-missing", "could-not-be-run"]
    assert sarif.returncode == run["invocations"][0]["exitCode"] == 1
    # A pipe in an encoding that has none of these characters.
    junit = qkv("check", "right.py", "raises.py", "--format", "junit", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    root = ElementTree.fromstring(junit.stdout)
    assert [(suite.attrib["name"], suite.attrib["errors"]) for suite in root] == [
        ("right.py:attention", "0"),
        ("raises.py:attention", "1"),
    ]
    assert "é ✓" in (root.findtext(".//error") or "")
    assert junit.returncode == 4


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [("right undecided", 3), ("undecided failed", 4), ("failed wrong right", 1), ("right right", 0)],
)
def test_the_exit_code_is_that_of_the_worst(verdicts: str, code: int) -> None:
    assert exit_code_of([Report(Verdict(one), CandidateWords("f")) for one in verdicts.split()]) == code


def test_dumps_are_judged_alone_or_by_twos(files: Path, qkv: Qkv) -> None:
    np.savez(files / "dump.npz", query=np.zeros((1, 2, 3, 4)))
    done = qkv("check", "right.py", "wrong.py", "dump.npz")
    assert done.returncode == 2
    assert "3 targets, dump.npz among them; dumps are judged alone or by twos" in done.stderr
    assert qkv("check", "dump.npz", "right.py").returncode == 2


def test_identify_has_no_faults_to_annotate(qkv: Qkv) -> None:
    done = qkv("identify", "right.py", "--format", "sarif")
    assert done.returncode == 2
    assert "'sarif' is not one of 'text', 'json'" in done.stderr


FAILING = """
import sys
from qkv import debugger

real = debugger.judge

def judge(request, host=None):
    if "right" in str(request.target):
        raise KeyError("of qkv's own")
    return real(request, host)

debugger.judge = judge
sys.argv = ["qkv", *sys.argv[1:]]
from qkv.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_a_fault_of_qkvs_own_leaves_a_whole_document(files: Path, form: str) -> None:
    command = [sys.executable, "-c", FAILING, "check", "wrong.py", "right.py", "--format", form]
    done = subprocess.run(command, cwd=files, env=environment(), capture_output=True, text=True)
    assert done.returncode == 4
    assert "scale-missing" in done.stdout
    assert "qkv itself failed" in done.stdout
    if form == "sarif":
        assert len(json.loads(done.stdout)["runs"][0]["results"]) == 2
    if form == "junit":
        assert len(ElementTree.fromstring(done.stdout)) == 2
