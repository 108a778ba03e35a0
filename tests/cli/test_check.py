"""``qkv check`` as a script sees it: exit codes, one JSON object of promised fields, help without a framework."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from command_line import environment
from qkv.cli.commands import COMMANDS, group
from qkv.errors import as_asked
from qkv.faults import CATALOGUE, GRADIENT_FAULTS, LENGTH_FAULTS
from qkv.scripts.slips import SCRIPT_SLIPS

Qkv = Callable[..., subprocess.CompletedProcess[str]]

FIELDS = {
    *("schema", "verdict", "candidate", "spec", "first_disagreement", "spread", "stage", "faults", "alternatives"),
    *("line", "strength", "probes", "repeat"),
}
"""The promise of the JSON report. Others may be added."""

INSIDE = {
    "first_disagreement": {"probe", "batch", "head", "query", "key", "channel", "expected", "got", "tensor"},
    "faults": {"id", "stage", "title", "explanation", "repair", "error"},
    "alternatives": {"id", "stage", "title"},
    "strength": {"would_catch", "of", "blind_to"},
    "probes": {"name", "agrees", "max_error", "tolerance"},
}


def of_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON report, once it has every promised field."""
    report: dict[str, Any] = json.loads(done.stdout)
    assert report.keys() >= FIELDS
    assert report["schema"] == 1
    for name, fields in INSIDE.items():
        parts = report[name] if isinstance(report[name], list) else [report[name]]
        assert all(part is None or part.keys() >= fields for part in parts), name
    return report


def test_a_right_attention(qkv: Qkv) -> None:
    done = qkv("check", "right.py", "--format", "json", "--seed", "7")
    report = of_report(done)
    assert (done.returncode, report["verdict"], done.stderr) == (0, "right", "")
    assert (report["first_disagreement"], report["faults"], report["stage"], report["line"]) == (None, [], None, None)
    assert report["candidate"]["name"] == "attention"
    assert report["spec"]["num_heads"] >= 1
    assert 0 < report["strength"]["would_catch"] < report["strength"]["of"] <= len(CATALOGUE)
    assert len(report["probes"]) > 5
    assert report["repeat"] == "qkv check right.py --format json --seed 7"


def test_a_wrong_attention(qkv: Qkv) -> None:
    done = qkv("check", "wrong.py:attention", "--format", "json")
    report = of_report(done)
    assert (done.returncode, report["verdict"], done.stderr) == (1, "wrong", "")
    assert [fault["id"] for fault in report["faults"]] == ["scale-missing"]
    assert report["stage"] == "scale"
    first = report["first_disagreement"]
    assert (first["batch"], first["query"]) == (0, 0)
    assert abs(first["expected"] - first["got"]) > 1e-3
    assert any(probe["agrees"] is False for probe in report["probes"])


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("raises.py", "calling attention raised ValueError: [2Jh\u00e9 \u2713"),
        ("missing.py", "no such file: missing.py"),
        ("right.py:nothing", "right.py has no 'nothing'"),
    ],
)
def test_an_attention_that_could_not_be_run(qkv: Qkv, target: str, said: str) -> None:
    done = qkv("check", target, "--format", "json")
    report = of_report(done)
    assert (done.returncode, report["verdict"], done.stderr) == (4, "failed", "")
    assert report["why"] == said
    assert report["faults"] == report["probes"] == []


def test_a_call_that_hangs_is_told_with_its_line_and_the_limit_to_raise(qkv: Qkv) -> None:
    done = qkv("check", "hangs.py", "--time-limit", "0.5")
    assert done.returncode == 4
    said = " ".join(done.stdout.split())
    assert "calling attention took longer than 0.5 s and was stopped; it stood at hangs.py:5: while True: pass" in said
    assert said.count("while True: pass") == 1
    assert "--time-limit 1.5" in said


def test_a_hint_is_the_command_that_was_typed_with_another_target() -> None:
    hint = "say which one is meant:\n  qkv check 'my file.py:a'\n  qkv check other.py:b"
    asked = as_asked(hint, "qkv explain --causal 'my file.py' --heads 2").splitlines()
    assert asked[1:] == ["  qkv explain --causal 'my file.py:a' --heads 2", "  qkv check other.py:b"]
    assert as_asked(hint, "") == hint


def test_bad_usage_leaves_stdout_empty(qkv: Qkv) -> None:
    done = qkv("check", "right.py", "--heads", "0", "--format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--heads is 0" in done.stderr


def test_ascii_alone_is_enough_for_json(qkv: Qkv) -> None:
    done = qkv("check", "raises.py", "--format", "json", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert of_report(done)["why"].endswith("h\u00e9 \u2713")


# --- the terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_fits_every_terminal(qkv: Qkv) -> None:
    for variables in ({"COLUMNS": "20"}, {"COLUMNS": "0"}, {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}):
        done = qkv("check", "wrong.py", **variables)
        assert done.returncode == 1, done.stderr
        text = " ".join(done.stdout.split())
        assert "scale-missing" in text
        assert "change wrong.py:5 - scores = query @ key.swapaxes(-1, -2) + scores = (query @" in text
        assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
        assert max(map(len, done.stdout.splitlines())) <= 100
    # Windows' code page has the dots, and no tick.
    assert done.stdout.startswith("x wrong")


@pytest.mark.parametrize("colours", [{"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_no_escape_is_printed_where_none_is_wanted(qkv: Qkv, colours: dict[str, str]) -> None:
    done = qkv("check", "raises.py", **colours)
    assert "\x1b" not in done.stdout
    assert "[2Jh\u00e9" in done.stdout


def test_colours_can_be_forced(qkv: Qkv) -> None:
    assert "\x1b[1" in qkv("check", "raises.py", FORCE_COLOR="1", TERM="xterm").stdout


# --- help, and the commands that judge nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there_without_any_framework(command: str) -> None:
    code = f"import sys; sys.argv = ['qkv', *{[command] if command else []!r}, '--help']\n"
    code += "from qkv.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n"
    code += "    print(end.code, sorted({'torch', 'transformers', 'jax'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage: qkv")
    assert done.stdout.endswith("0 []\n")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_faults_lists_every_fault_and_explains_one() -> None:
    known = [*CATALOGUE, *LENGTH_FAULTS, *GRADIENT_FAULTS, *SCRIPT_SLIPS]
    assert [line.split()[0] for line in run("faults").splitlines()] == known
    told = run("faults", "causal-missing")
    assert told.startswith("causal-missing: ")
    assert "write instead:\n    " in told
    done = CliRunner().invoke(group, ["faults", "causal-mising"])
    assert (done.exit_code, "did you mean 'causal-missing'?" in done.stderr) == (2, True)


def test_shapes_gives_every_stage_in_names_and_numbers() -> None:
    told = run("shapes", "--heads", "2", "--head-dim", "2", "--query-len", "3", "--causal")
    assert "(query dim)(dim key) -> (query key)" in told
    assert "(3 x 2)(2 x 3) = (3 x 3)" in told
    done = CliRunner().invoke(group, ["shapes", "--heads", "6", "--embed-dim", "7"])
    assert done.exit_code == 2
    assert "--embed-dim 7 can't be shared out among 6 heads" in done.stderr


def test_spec_says_what_it_means_and_gives_itself_back(tmp_path: Path) -> None:
    flags = ["--heads", "6", "--kv-heads", "2", "--causal", "--rope", "halves"]
    assert run("spec", *flags).startswith("6 query heads over 2 key/value heads")
    written = run("spec", *flags, "--format", "json")
    (tmp_path / "spec.json").write_text(written)
    assert run("spec", "--spec", str(tmp_path / "spec.json"), "--format", "json") == written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chekc", "a.py"], "Did you mean 'check'?"),
        (["a.py"], "To judge a file: qkv check a.py"),
        (["judge"], "See qkv --help"),
    ],
)
def test_a_word_that_is_no_command_is_told_the_next_line(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 2
    assert said in done.stderr
