"""A candidate of several files: the line and the repair are those of the file where the fault is."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import qkv_in
from qkv.adapters.process import HostProcess
from qkv.debugger import judge
from qkv.report import Report, Verdict
from qkv.request import Request

ROPE = """import numpy as np


def tables(length, width, base=10000.0):
    frequencies = base ** (-np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(length), frequencies)
    return np.cos(angles), np.sin(angles)


def turned(x, cos, sin):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
"""

MASKS = """import numpy as np


def causal(length):
    return np.tril(np.ones((length, length), dtype=bool))
"""

ATTENTION = """import numpy as np

from {dot}masks import causal
from {dot}rope import tables, turned


def causal_attention(query, key, value):
    cos, sin = tables(query.shape[-2], query.shape[-1])
    query, key = turned(query, cos, sin), turned(key, cos, sin)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    scores = np.where(causal(query.shape[-2]), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True) @ value
"""

SLIPS = {
    "masks.py": ("dtype=bool))", "dtype=bool), 1)"),
    "rope.py": ("second * cos + first", "second * cos - first"),
}


def project(folder: Path, changed: str, slip: tuple[str, str], *, package: bool) -> Path:
    """The file of an attention whose parts stand in files beside it, one of them changed."""
    folder.mkdir(exist_ok=True)
    texts = {"rope.py": ROPE, "masks.py": MASKS, "attention.py": ATTENTION.format(dot="." if package else "")}
    texts[changed] = texts[changed].replace(*slip)
    for name, text in {**texts, **({"__init__.py": ""} if package else {})}.items():
        (folder / name).write_text(text)
    return folder / "attention.py"


def judged(file: Path, seconds: float = 20.0) -> Report:
    return judge(Request(str(file), {"rope": "halves"}, patch_seconds=seconds))


@pytest.mark.parametrize(
    ("changed", "package"), [("masks.py", True), pytest.param("rope.py", False, marks=pytest.mark.slow)]
)
def test_the_file_with_the_fault_is_blamed_and_mended(tmp_path: Path, changed: str, package: bool) -> None:
    slip = SLIPS[changed]
    file = project(tmp_path / "model", changed, slip, package=package)
    report, beside = judged(file), file.with_name(changed)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert Path(report.line.file) == beside
    assert slip[1] in report.line.code
    assert report.patch is not None
    assert Path(report.patch.path) == beside
    assert slip[1] in beside.read_text()  # left as it was
    edited = {str(beside): report.patch.edited}
    with HostProcess() as host:
        assert judge(Request(str(file), {"rope": "halves"}, instead=edited), host).verdict is Verdict.RIGHT
        assert judge(Request(str(file), {"rope": "halves"}), host).verdict is Verdict.WRONG  # in the same process too


@pytest.mark.slow
def test_a_default_of_a_function_that_only_another_file_calls_is_blamed(tmp_path: Path) -> None:
    file = project(tmp_path, "rope.py", ("base=10000.0", "base=500.0"), package=False)
    line = judged(file, 0.0).line
    assert line is not None
    assert (Path(line.file).name, line.code) == ("rope.py", "def tables(length, width, base=500.0):")


@pytest.mark.slow
def test_fix_writes_the_file_with_the_fault_and_no_other(tmp_path: Path) -> None:
    file = project(tmp_path / "model", "masks.py", SLIPS["masks.py"], package=True)
    before = file.read_text()
    done = qkv_in(tmp_path, "check", "model/attention.py", "--rope", "halves", "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed   model/masks.py:5" in done.stdout
    assert file.read_text() == before
    assert qkv_in(tmp_path, "check", "model/attention.py", "--rope", "halves").returncode == 0


@pytest.mark.slow
def test_what_is_installed_is_never_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    file = project(tmp_path, "masks.py", SLIPS["masks.py"], package=False)
    installed.mkdir()
    file.with_name("masks.py").rename(installed / "masks.py")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    report = judged(file, 3.0)
    assert report.verdict is Verdict.WRONG
    assert report.patch is None or Path(report.patch.path) == file
