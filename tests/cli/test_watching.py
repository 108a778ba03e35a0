"""``--watch`` as a person uses it: save, read the next report, save again, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from command_line import COMMAND, FILES, environment

Qkv = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

HELPED = "from helper import scale\n" + FILES["right.py"].replace("/ np.sqrt(query.shape[-1])", "* scale(query)")
HELPER = "def scale(query):\n    return query.shape[-1] ** -0.5\n"
IN_TORCH = """\
import torch

def attention(query, key, value):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ value
"""


class Watch:
    """A running watch."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def report(self) -> Any:
        """The next report: one line of JSON, once the next save would be seen."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        while "waiting for changes to" not in (said := self.process.stderr.readline()):
            assert said
        return json.loads(line)

    def verdict(self) -> str:
        verdict: str = self.report()["verdict"]
        return verdict


@contextmanager
def watching(folder: Path, *arguments: str, form: str = "json") -> Iterator[Watch]:
    process = subprocess.Popen(
        [*COMMAND, "check", "--watch", *arguments, "--format", form],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield Watch(process)
        finally:
            process.kill()


def save(file: Path, text: str) -> None:
    """Saves as editors do: a new file, which then gets the name of the old one."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def test_each_save_is_judged_anew(files: Path) -> None:
    file = files / "attention.py"
    file.write_text(FILES["right.py"])
    with watching(files, "attention.py") as watch:
        assert watch.verdict() == "right"
        save(file, FILES["wrong.py"])
        started = time.monotonic()
        assert watch.verdict() == "wrong"
        assert time.monotonic() - started < 10
        file.write_text(FILES["wrong.py"][:-40])
        broken = watch.report()
        assert (broken["verdict"], "is not Python" in broken["why"]) == ("failed", True)
        file.unlink()
        time.sleep(0.3)
        file.write_text(FILES["right.py"])
        assert watch.verdict() == "right"


@pytest.mark.slow
def test_a_file_that_it_imports_is_watched_too(files: Path) -> None:
    (files / "attention.py").write_text(HELPED)
    (files / "other.py").write_text("")
    with watching(files, "attention.py") as watch:
        assert watch.verdict() == "failed"  # there is no helper yet
        save(files / "helper.py", HELPER)
        assert watch.verdict() == "right"
        save(files / "other.py", "x = 1")
        save(files / "helper.py", HELPER.replace("-0.5", "-0.25"))
        assert [fault["id"] for fault in watch.report()["faults"]] == ["scale-other-constant"]


@pytest.mark.slow
def test_nothing_of_an_earlier_run_is_left(files: Path) -> None:
    kept = "import torch\ntorch.runs = getattr(torch, 'runs', 0) + 1\nassert torch.runs == 1\n"
    file = files / "attention.py"
    file.write_text(kept + IN_TORCH)
    with watching(files, "attention.py") as watch:
        assert watch.verdict() == "right"
        save(file, kept + IN_TORCH + "\n")
        assert watch.verdict() == "right"


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_it_ends_when_it_is_told_to(files: Path, name: str, code: int) -> None:
    with watching(files, "right.py") as watch:
        assert watch.verdict() == "right"
        children = psutil.Process(watch.process.pid).children(recursive=True)
        assert children, "the next process is started ahead"
        os.kill(watch.process.pid, getattr(signal, name))
        out, said = watch.process.communicate(timeout=10)
        assert (watch.process.returncode, out) == (code, "")
        assert said == ("interrupted\n" if name == "SIGINT" else "")
        assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.slow
def test_it_ends_once_nobody_reads(files: Path) -> None:
    with watching(files, "right.py") as watch:
        assert watch.verdict() == "right"
        assert watch.process.stdout is not None
        watch.process.stdout.close()
        save(files / "right.py", FILES["wrong.py"])
        assert watch.process.wait(20) == 0


def test_a_pipe_gets_text_with_the_time_and_no_escapes(files: Path) -> None:
    with watching(files, "right.py", form="text") as watch:
        assert watch.process.stdout is not None
        lines = []
        while not lines or "waiting" not in lines[-1]:
            lines.append(watch.process.stdout.readline())
    assert lines[0].endswith("  checking right.py\n")
    assert lines[1].startswith("✓ right  attention")
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("right.py", "wrong.py"), "--watch takes one file, and 2 are given"),
        (("right.py", "--format", "sarif"), "sarif is one document. Use --format json"),
        (("wrongg.py",), "--watch: no such file: wrongg.py; did you mean 'wrong.py'?"),
        (("dump.npz",), "--watch: no such file: dump.npz"),
    ],
)
def test_what_can_not_be_watched(qkv: Qkv, arguments: tuple[str, ...], said: str) -> None:
    done = qkv("check", "--watch", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
