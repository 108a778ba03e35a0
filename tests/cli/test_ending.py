"""How a run ends: with a code that means one thing, nothing left behind, and no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from command_line import COMMAND, environment

Qkv = Callable[..., subprocess.CompletedProcess[str]]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and /dev")

FAILING = """
import sys
from qkv import debugger

def judge(request, host):
    raise KeyError("a fault\\nof qkv's own")

debugger.judge = judge
sys.argv = ["qkv", *sys.argv[1:]]
from qkv.cli import main
main()
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def candidates(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that hold candidates for a run, once there are some."""
    deadline = time.monotonic() + 30
    while not (children := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return children


@posix
@pytest.mark.parametrize(
    ("name", "code", "said"), [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, ""), ("SIGHUP", 129, "")]
)
def test_a_signal_ends_the_run_and_the_candidate(files: Path, name: str, code: int, said: str) -> None:
    process = started(files, "check", "hangs.py", "--format", "json")
    children = candidates(process)
    time.sleep(0.5)
    process.send_signal(getattr(signal, name))
    assert process.communicate(timeout=20) == ("", said)
    assert process.returncode == code
    assert psutil.wait_procs(children, timeout=5)[1] == []


@posix
@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.35])
def test_an_early_ctrl_c_is_no_traceback(files: Path, seconds: float) -> None:
    # Sent when Python has loaded the first line of qkv's own, wherever it stands after this time.
    ready = [sys.executable, "-c", "import qkv.cli; print(flush=True); qkv.cli.main()", "check", "right.py"]
    process = subprocess.Popen(
        ready, cwd=files, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[1] == "interrupted\n"
    assert process.returncode == 130


@posix
def test_a_reader_who_leaves_is_no_error(files: Path) -> None:
    for arguments, code in ((["check", "wrong.py"], 1), (["faults"], 0), (["--help"], 0)):
        process = started(files, *arguments)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(30) == code
        process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["check", "wrong.py"], ["spec", "--causal"], ["--help"]])
def test_a_full_disk_is_said_in_a_line(files: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=files, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 4
    assert done.stderr == "qkv: the output could not be written: No space left on device\n"


@posix
@pytest.mark.slow
def test_closed_streams_do_no_harm(files: Path) -> None:
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        command = f'"{sys.executable}" -c "{COMMAND[2]}" check wrong.py {closed}'
        done = subprocess.run(["sh", "-c", command], cwd=files, env=environment(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, ""), closed


def run_failing(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FAILING, *arguments], cwd=folder, env=environment(), capture_output=True, text=True
    )


SAID = 'qkv itself failed: KeyError: "a fault\\nof qkv\'s own" (cli/check.py:'


def test_a_fault_of_qkvs_own_is_said_in_a_line(files: Path) -> None:
    done = run_failing(files, "check", "right.py")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(SAID)
    assert done.stderr.endswith("); please report it\n")
    assert done.stderr.count("\n") == 1


def test_a_fault_of_qkvs_own_is_a_failed_report_too(files: Path) -> None:
    done = run_failing(files, "check", "right.py:attention", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (4, "failed")
    assert report["why"].startswith(SAID)
    assert report["candidate"]["file"] == "right.py"
    assert report["candidate"]["name"] == "attention"
    assert report["repeat"] == "qkv check right.py:attention --format json"
