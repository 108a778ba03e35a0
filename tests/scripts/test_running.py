"""How a script is run: statement by statement, with notes on its arrays, whatever it does besides."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qkv.adapters import process
from qkv.adapters.messages import ScriptRun
from qkv.adapters.process import HostProcess
from qkv.adapters.texts import is_script, script_of, text_of
from qkv.report import Report, Verdict
from qkv.scripts import explained

ATTENTION = """\
import torch

x = torch.rand(4, 3)
w = torch.softmax(x @ x.T, dim=-1)
c = w @ x
"""


@pytest.fixture
def run(host: HostProcess, tmp_path: Path) -> Callable[[str], ScriptRun]:
    return lambda source: host.script(str(tmp_path / "script.py"), source)


@pytest.fixture
def judge(host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Report]:
    monkeypatch.chdir(tmp_path)

    def judged(source: str) -> Report:
        Path("script.py").write_text(source, encoding="utf-8")
        return explained(text_of("script.py"), host, "").report

    return judged


def operations(done: ScriptRun) -> list[tuple[str, str, str]]:
    places = done.recording.places
    noted = [operation for operation in done.recording.operations if operation.place is not None]
    return [(one.name, places[one.place].code, places[one.place].target) for one in noted if one.place is not None]


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_every_array_is_noted_with_its_expression(run: Callable[[str], ScriptRun], library: str) -> None:
    done = run(f"import {library} as t\na = t.ones((2, 3))\nb = (a @ a.T)[0] * 2\nb[1] = 7\nb += 1\n")
    assert operations(done) == [
        ("ones", "t.ones((2, 3))", "a"),
        ("T", "a.T", "b"),
        ("matmul", "a @ a.T", "b"),
        ("getitem", "(a @ a.T)[0]", "b"),
        ("mul", "(a @ a.T)[0] * 2", "b"),
        ("setitem", "b[1] = 7", "b[1]"),
        ("add", "b += 1", "b"),
    ]
    values = done.recording.values
    assert values[done.bound[-1].value].array.tolist() == [7, 8]
    assert values[done.bound[1].value].array.tolist() == [6, 6]  # as it was before


def test_in_place_calls_give_a_new_array(run: Callable[[str], ScriptRun]) -> None:
    done = run("import torch\ns = torch.ones(2, 2)\nt = s\ns.masked_fill_(torch.eye(2).bool(), 0)\nu = t + 1\n")
    last = done.recording.operations[-1]
    (operand,) = (argument for argument in last.arguments if hasattr(argument, "value"))
    assert done.recording.values[operand.value].array.tolist() == [[0, 1], [1, 0]]


HELPERS = """\
import torch
def share(rows):
    return rows / rows.sum()
def shares(x):
    return [share(torch.exp(row)) for row in x]
s = torch.ones(2, 3)
w = torch.stack(shares(s))
s *= 2
"""


def test_operations_in_functions_know_the_calls_that_led_there(run: Callable[[str], ScriptRun]) -> None:
    recording = run(HELPERS).recording
    led = {one.name: [recording.places[call].code for call in one.calls] for one in recording.operations}
    assert led["exp"] == ["shares(s)"]
    assert led["sum"] == led["div"] == ["share(torch.exp(row))", "shares(s)"]
    assert led["stack"] == led["ones"] == []


def test_what_a_variable_holds_is_known_where_it_is_read(run: Callable[[str], ScriptRun]) -> None:
    done = run(HELPERS)
    held = [(one.function, one.name, done.recording.values[one.value].array.tolist()) for one in done.held]
    ones, e = [[1, 1, 1], [1, 1, 1]], pytest.approx([2.7182818] * 3)
    assert held[:4] == [("", "s", ones), ("shares", "x", ones), ("shares", "row", ones[0]), ("share", "rows", e)]
    assert [name for function, name, _ in held if not function] == ["s", "w", "s"]


def test_a_script_does_what_it_does_without_notes(run: Callable[[str], ScriptRun], tmp_path: Path) -> None:
    source = """\
from __future__ import annotations
import numpy as np
from dataclasses import dataclass
@dataclass
class A:
    n: int = 3
    def size(self): return self.n
class B(A):
    def size(self): return super().size() + 1
def total(*xs, scale: float = 2.0, **more): return sum(x * scale for x in xs)
a = np.arange(B().size())
b, *rest = [total(x, scale=0.5) for x in a if x > 0]
match rest:
    case [first, second]: text = f"{first=} {second + 1:.1f}"
z = (w := b) if b < 1 else lambda: None
d = {k: v for k, v in zip("ab", a)}
a[1:3] *= 10; a[-1] -= 1
del d["a"]
async def later(): return await later()
try:
    a @ np.ones(7)
except ValueError as error:
    text += type(error).__name__
print(text, w, sorted(d), a.tolist(), __name__, B.size.__qualname__)
"""
    done = run(source)
    assert done.error == ""
    plain: dict[str, object] = {"__name__": "__main__"}
    exec(compile(source, "plain", "exec"), plain)  # noqa: S102 - the same code, run as it is
    expected = (plain["text"], plain["w"], ["b"], np.array([0, 10, 20, 2]).tolist(), "__main__", "B.size")
    assert done.printed.strip() == " ".join(map(str, expected))


@pytest.mark.parametrize(
    ("source", "why", "hint"),
    [
        ("input('name? ')\n" + ATTENTION, "script.py:1: EOFError", "take out input()"),
        ("open('nothing.txt')\n" + ATTENTION, "script.py:1: FileNotFoundError", ""),
        (ATTENTION.replace("x.T", "x"), "script.py:4: RuntimeError", "Did you forget x.transpose(-2, -1)?"),
        (ATTENTION + "assert (w > 1).all(), 'small'\n", "script.py:6: AssertionError: small", ""),
        (ATTENTION + "raise KeyboardInterrupt\n", "script.py:6: KeyboardInterrupt", ""),
    ],
)
def test_a_script_that_stops_says_where(judge: Callable[[str], Report], source: str, why: str, hint: str) -> None:
    report = judge(source)
    assert report.verdict is Verdict.FAILED
    assert f"it stops at {why}" in report.why
    assert hint in report.hint
    assert report.line is not None


def test_what_cannot_be_imported_is_left_out(judge: Callable[[str], Report]) -> None:
    report = judge("import not_there.pyplot as plt\n" + ATTENTION + "fig, ax = plt.subplots()\nax.imshow(w)\n")
    assert report.verdict is Verdict.RIGHT
    assert "script.py:1, script.py:7, script.py:8" in " ".join(report.assumptions)


def test_a_script_may_end_itself_and_print_a_lot(judge: Callable[[str], Report]) -> None:
    report = judge(ATTENTION + "for _ in range(5000): print(w)\nimport sys\nsys.exit(3)\nprint('never')\n")
    assert report.verdict is Verdict.RIGHT
    assert "it ends itself at script.py:8" in " ".join(report.assumptions)
    assert len(report.printed) <= 2000


def test_large_arrays_are_said_to_be_too_large(judge: Callable[[str], Report]) -> None:
    report = judge(ATTENTION.replace("4, 3", "3000, 8"))
    assert report.verdict is Verdict.UNDECIDED
    assert "run it with fewer tokens" in report.why


def test_a_script_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SCRIPT_LIMIT", 4.0)
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text("x = [[1]]\nwhile True:\n    x @ x if False else None\n", encoding="utf-8")
    with HostProcess(time_limit=1.0) as host:
        report = explained(text_of("script.py"), host, "").report
    assert report.verdict is Verdict.FAILED
    assert re.search(r"took longer than 4 s and was stopped; it stood at script\.py:[23]:", report.why)


def test_a_script_that_ends_its_process_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text("import os\nos._exit(7)\nx = y @ z\n", encoding="utf-8")
    with HostProcess() as host:
        report = explained(text_of("script.py"), host, "").report
    assert "ended the process with exit code 7" in report.why


@pytest.mark.parametrize(
    ("source", "script"),
    [
        (ATTENTION, True),
        ("def softmax(x): ...\ndef causal_mask(n): ...\n" + ATTENTION, True),
        ("class CausalAttention: ...\n" + ATTENTION, False),
        ("def attention(q, k, v): ...\n" + ATTENTION, False),
        ("def run(query, key, value): ...\n" + ATTENTION, False),
        ("import torch\nx = torch.rand(3)\n", False),
        ("def f(x):\n    return x @ x\n", False),
        ("def main():\n    return 1\nif __name__ == '__main__':\n    y = main() @ 2\n", True),
    ],
)
def test_which_files_are_scripts(source: str, script: bool, tmp_path: Path) -> None:
    import ast

    assert is_script(ast.parse(source)) is script
    (tmp_path / "f.py").write_text(source, encoding="utf-8")
    assert (script_of(tmp_path / "f.py") is not None) is script
    assert script_of(f"{tmp_path / 'f.py'}:name") is None
