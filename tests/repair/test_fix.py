"""``qkv check`` shows a repair, and ``--fix`` writes it; a file that none was found for is never touched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import RIGHT, qkv_in
from qkv.adapters.process import HostProcess
from qkv.debugger import judge
from qkv.report import Verdict
from qkv.request import Request

WRONG = RIGHT.replace("np.sqrt(query.shape[-1])", "np.sqrt(query.shape[-2])")
HOPELESS = "import numpy as np\n\n\ndef attention(query, key, value):\n    return np.tanh(value)\n"


def file_in(folder: Path, text: str, name: str = "attention.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_the_line_is_shown_in_place_of_the_catalogue_s_advice(tmp_path: Path) -> None:
    file = file_in(tmp_path, WRONG)
    done = qkv_in(tmp_path, "check", "attention.py")
    assert done.returncode == 1
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "change    attention.py:5" in lines
    assert "- scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-2])" in lines
    assert "with this it is found right; --fix writes it" in lines
    assert "write instead:" not in lines
    assert file.read_text(encoding="utf-8") == WRONG


def test_json_has_the_patch(tmp_path: Path) -> None:
    file_in(tmp_path, WRONG)
    patch = json.loads(qkv_in(tmp_path, "check", "attention.py", "--format", "json").stdout)["patch"]
    assert patch.keys() == {"file", "line", "before", "after", "diff", "mends", "applied"}
    assert (patch["file"], patch["line"], patch["applied"]) == ("attention.py", 5, False)
    assert patch["before"] == "    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-2])"
    assert patch["diff"].startswith("--- attention.py\n+++ attention.py\n@@")


def test_fix_writes_the_file_and_says_what_it_is_now(tmp_path: Path) -> None:
    file = file_in(tmp_path, WRONG.replace("\n", "\r\n"))
    done = qkv_in(tmp_path, "check", "attention.py", "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("✓ right  attention")
    assert "changed   attention.py:5" in done.stdout
    text = file.read_bytes()
    assert text.count(b"\r\n") == text.count(b"\n") == WRONG.count("\n")
    assert qkv_in(tmp_path, "check", "attention.py").returncode == 0


@pytest.mark.slow
def test_without_a_repair_nothing_is_touched(tmp_path: Path) -> None:
    file = file_in(tmp_path, HOPELESS)
    before = file.stat().st_mtime_ns
    done = qkv_in(tmp_path, "check", "attention.py", "--fix", "--causal", "--heads", "2")
    assert done.returncode == 1
    assert "no small edit was found with which attention.py is right, so nothing was changed" in done.stderr
    assert (file.read_text(encoding="utf-8"), file.stat().st_mtime_ns) == (HOPELESS, before)
    assert [path.name for path in tmp_path.iterdir()] == ["attention.py"]


def test_what_is_read_only_is_shown_and_not_written(tmp_path: Path) -> None:
    file = file_in(tmp_path, WRONG)
    file.chmod(0o444)
    done = qkv_in(tmp_path, "check", "attention.py", "--fix")
    assert done.returncode == 1
    assert "attention.py is read-only, so it was left as it is" in done.stderr
    assert file.read_text(encoding="utf-8") == WRONG


def test_what_can_t_be_mended(tmp_path: Path) -> None:
    np.savez(tmp_path / "dump.npz", query=np.ones((1, 1, 2, 2)))
    dump = qkv_in(tmp_path, "check", "dump.npz", "--fix")
    assert (dump.returncode, "--fix mends code, and dump.npz is a dump" in dump.stderr) == (2, True)
    file_in(tmp_path, RIGHT)
    watched = qkv_in(tmp_path, "check", "attention.py", "--fix", "--watch")
    assert (watched.returncode, "--fix would save it too" in watched.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_imports_and_files_beside_it_work_for_an_edited_text(tmp_path: Path, encoding: str) -> None:
    """The text is run as if it stood in the user's file: in its package, with its siblings and its own folder."""
    file_in(tmp_path, "", "package/__init__.py")
    file_in(tmp_path, "def width(query):\n    return query.shape[-1]\n", "package/sizes.py")
    file_in(tmp_path, "0.5", "package/root.txt")
    text = (
        "# -*- coding: latin-1 -*-\n" * (encoding == "latin-1")
        + "from pathlib import Path\n\nfrom .sizes import width\n\n"
        + "größe = float(Path(__file__).with_name('root.txt').read_text())\n"
        + RIGHT.replace("/ np.sqrt(query.shape[-1])", "* width(query) ** größe")
    )
    path = tmp_path / "package" / "attention.py"
    path.write_bytes(text.encode(encoding))
    report = judge(Request(str(path), {"num_heads": 2}, patch_seconds=20.0))
    assert report.verdict is Verdict.WRONG
    assert report.patch is not None
    assert report.patch.original == text.encode(encoding)
    with HostProcess() as host:
        edited = judge(Request(str(path), {"num_heads": 2}, instead={str(path.absolute()): report.patch.edited}), host)
    assert edited.verdict is Verdict.RIGHT
    assert path.read_bytes() == text.encode(encoding)


SCRIPT = """\
import torch

inputs = torch.rand(5, 3)
attn_scores = inputs @ inputs.T
attn_weights = torch.softmax(attn_scores, dim=0)
all_context_vecs = attn_weights @ inputs
"""


@pytest.mark.slow
def test_a_script_is_mended(tmp_path: Path) -> None:
    file = file_in(tmp_path, SCRIPT.replace("\n", "\r\n"), "script.py")
    shown = qkv_in(tmp_path, "explain", "script.py")
    assert (shown.returncode, "+ attn_weights = torch.softmax(attn_scores, dim=-1)" in shown.stdout) == (1, True)
    done = qkv_in(tmp_path, "check", "script.py", "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed   script.py:5" in done.stdout
    assert file.read_bytes() == SCRIPT.replace("dim=0", "dim=-1").replace("\n", "\r\n").encode()


@pytest.mark.slow
def test_a_script_that_raises_is_mended(tmp_path: Path) -> None:
    text = SCRIPT.replace("dim=0", "dim=-1")
    file = file_in(tmp_path, text.replace("inputs.T", "inputs"), "script.py")
    assert qkv_in(tmp_path, "check", "script.py", "--fix").returncode == 0
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_a_notebook_keeps_all_but_the_line(tmp_path: Path) -> None:
    """Of a script in its cells and of a function in them; outputs, counts and the form of the JSON stay."""
    cells = ["%matplotlib inline\nimport torch\n\ninputs = torch.rand(5, 3)", SCRIPT.partition("\n\n")[2], WRONG]
    for chosen, target in ((cells[:2], "n.ipynb"), (cells[2:], "n.ipynb:attention")):
        book = {
            "nbformat": 4,
            "cells": [
                {
                    "cell_type": "code",
                    "outputs": [{"text": ["dim=0"]}],
                    "execution_count": 7,
                    "source": cell.splitlines(keepends=True),
                }
                for cell in chosen
            ],
        }
        text = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
        file = file_in(tmp_path, text, "n.ipynb")
        done = qkv_in(tmp_path, "check", target, "--fix")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"changed   n.ipynb cell {len(chosen)}:{3 if 'attention' not in target else 5}" in done.stdout
        right = text.replace(", dim=0)", ", dim=-1)").replace("shape[-2])", "shape[-1])")
        assert file.read_text(encoding="utf-8") == right
