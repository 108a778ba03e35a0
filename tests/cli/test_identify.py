"""``qkv identify`` as a script sees it: exit codes, one JSON object of promised fields, a spec that check accepts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Qkv = Callable[..., subprocess.CompletedProcess[str]]

KERNEL = """
import numpy as np

def kernel(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / 8
    at = np.arange(scores.shape[-2])[:, None] + scores.shape[-1] - scores.shape[-2]
    scores = np.where(np.arange(scores.shape[-1])[None, :] <= at, scores, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v

def linear(q, k, v):
    return (np.abs(q) + 1) @ (np.swapaxes(np.abs(k) + 1, -1, -2) @ v)
"""


def test_the_answer_in_json_is_a_spec_that_check_accepts(qkv: Qkv, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    done = qkv("identify", f"{file}:kernel", "--heads", "4", "--format", "json")
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert answer.keys() >= {"schema", "spec", "per_head", "errors", "undecided"}
    assert (answer["schema"], answer["spec"]["causal"], answer["spec"]["scale"]) == (1, True, 0.125)
    assert (answer["spec"]["query_offset"], answer["spec"]["num_heads"]) == ("bottom_right", 4)
    assert [head["kv_head"] for head in answer["per_head"]] == [0, 1, 2, 3]
    assert 0 < answer["errors"]["scale"] < 1e-10
    spec = tmp_path / "answer.json"
    spec.write_text(done.stdout)
    checked = qkv("check", f"{file}:kernel", "--spec", str(spec), "--format", "json")
    assert json.loads(checked.stdout)["verdict"] == "right"


def test_the_answer_in_text(qkv: Qkv, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    done = qkv("identify", f"{file}:kernel")
    assert done.returncode == 0
    assert done.stdout.startswith("✓ read  kernel")
    assert "scale 0.125 = 1/sqrt(64), whatever head_dim is" in " ".join(done.stdout.split())
    assert done.stdout.rstrip().endswith(f"qkv identify {file}:kernel")


def test_no_softmax_attention_is_read_in_part(qkv: Qkv, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    done = qkv("identify", f"{file}:linear", "--format", "json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["spec"]) == (3, None)
    assert answer["why"]


def test_a_file_that_is_missing_cannot_be_read(qkv: Qkv, tmp_path: Path) -> None:
    done = qkv("identify", f"{tmp_path / 'none.py'}:kernel")
    assert done.returncode == 4
    assert "none.py" in done.stdout


def test_which_attention_must_be_said(qkv: Qkv) -> None:
    done = qkv("identify")
    assert done.returncode == 2
    assert "qkv identify kernel.py:attention" in done.stderr
