"""``qkv explain``: the code line by line, of scripts, notebooks, classes and functions, for people and programs."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

import qkv.demo
from command_line import FILES, qkv_in
from qkv.explainer import explain
from qkv.report import Verdict
from qkv.report.anatomy import Anatomy, anatomy_to_json
from qkv.report.anatomy_text import anatomy_text
from qkv.request import Request

SCRIPTS = Path(__file__).parents[1] / "scripts"
DEMO = Path(next(iter(qkv.demo.__path__))) / "causal_attention.py"

Qkv = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path) -> Qkv:
    for name in ("right/article.py", "wrong/softmax_dim_0.py"):
        (tmp_path / Path(name).name).write_text((SCRIPTS / name).read_text(encoding="utf-8"), encoding="utf-8")
    return partial(qkv_in, tmp_path)


@pytest.fixture(scope="module")
def wrong() -> Anatomy:
    """A script with its softmax over the wrong axis, explained."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return explained(SCRIPTS / "wrong" / "softmax_dim_0.py", monkeypatch)


def explained(file: Path, monkeypatch: pytest.MonkeyPatch, target: str = "") -> Anatomy:
    monkeypatch.chdir(file.parent)
    return explain(Request(target or file.name, repeat=f"qkv explain {file.name}"))


def as_text(anatomy: Anatomy, width: int = 100) -> str:
    return anatomy_text(anatomy, Console(file=io.StringIO(), width=width, color_system=None))


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def line_with(anatomy: Anatomy, code: str) -> Any:
    return next(line for line in anatomy.lines if code in line.code)


@pytest.mark.parametrize("script", ["right/article", "wrong/softmax_dim_0", "right/multi_head", "right/one_token"])
def test_a_script_as_a_person_reads_it(
    script: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    text = as_text(explained(SCRIPTS / f"{script}.py", monkeypatch))
    assert not re.search(r"[ \t]$|\x1b", text, re.MULTILINE)
    assert text == snapshot


@pytest.mark.parametrize("width", [60, 80, 140, 200])
def test_nothing_is_cut_off_at_any_width(width: int, wrong: Anatomy) -> None:
    text = as_text(wrong, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text.partition("✗ wrong")[0]
    assert "(querychannel)(channelkey)->(querykey)" in "".join(text.split())
    assert text.count("✗") == 2  # the line, and the verdict


def test_a_class_as_a_person_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    file = written(tmp_path, "causal_attention.py", DEMO.read_text(encoding="utf-8"))
    anatomy = explained(file, monkeypatch)
    assert anatomy.report.verdict is Verdict.WRONG
    assert line_with(anatomy, "diagonal=").mark == "wrong"
    scores = line_with(anatomy, "attn_scores = ")
    assert scores.mark == "right"
    assert [made.name for made in scores.makes] == ["key", "attn_scores"]
    assert scores.makes[-1].product == "(query dim)(dim key) -> (query key)"
    assert scores.makes[-1].numbers == "(7 x 8)(8 x 7) = (7 x 7)"
    assert line_with(anatomy, "attn_weights = ").makes[-1].name == "attn_weights"  # as it is under the fault
    assert line_with(anatomy, "attn_weights = ").mark == ""
    assert as_text(anatomy).partition("✗ wrong")[0] == snapshot


def test_that_nothing_was_seen_is_said(wrong: Anatomy) -> None:
    assert as_text(replace(wrong, lines=())).startswith("its lines are not shown: ")


def test_a_right_function_of_numpy_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy = explained(written(tmp_path, "right.py", FILES["right.py"]), monkeypatch)
    assert anatomy.report.verdict is Verdict.RIGHT
    last = line_with(anatomy, "return")
    assert last.mark == "right"
    assert [made.name for made in last.makes][-1] == "context"
    assert {made.name for line in anatomy.lines for made in line.makes} >= {"attn_weights", "context"}


ONE_BY_ONE = """import numpy as np


def attention(q, k, v):
    out = np.zeros_like(v)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[b, h] @ k[b, h].T / np.sqrt(q.shape[-1])
            weights = np.exp(scores)
            out[b, h] = weights / weights.sum(axis=-1, keepdims=True) @ v[b, h]
    return out
"""


def test_a_line_in_a_loop_tells_what_it_made_first_how_often_and_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anatomy = explained(written(tmp_path, "loop.py", ONE_BY_ONE), monkeypatch)
    first, rest = next(
        made.note.split("; ", 1) for made in line_with(anatomy, "scores = q").makes if made.name == "attn_scores"
    )
    assert first == "batch 0, head 0"
    assert re.match(r"\d+ more, the last: \(query \d+, key \d+\) batch 1, head \d+", rest)


TOGETHER = """import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, c))
"""


@pytest.mark.slow
def test_a_line_that_makes_much_names_each_of_it_and_its_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anatomy = explained(written(tmp_path, "together.py", TOGETHER), monkeypatch)
    made = line_with(anatomy, "q, k, v = ").makes
    assert list(dict.fromkeys(one.name for one in made)) == ["query", "key", "value"]
    assert made[-1].axes == ["batch", "head", "key", "value dim"]
    assert {one.product for one in made if one.name == "key"} == {
        "", "(key embed)(embed head*dim) -> (key head*dim)"
    }  # fmt: skip
    fused = line_with(anatomy, "y = ").makes[-1]
    assert fused.product == "(query dim)(dim key) -> (query key), (query key)(key value dim) -> (query value dim)"
    assert "(7 x 8)(8 x 7) = (7 x 7), (7 x 7)(7 x 8) = (7 x 8)" in as_text(anatomy, 90)


UNKNOWN = """import torch


def attention(query, key, value):
    scores = query @ key.mT / query.shape[-1] ** 0.5 + torch.sin(query @ key.mT) * query.sum(-1, keepdim=True)
    return torch.softmax(scores, -1) @ value
"""


@pytest.mark.slow
def test_what_nothing_is_known_of_has_its_own_name_and_no_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy = explained(written(tmp_path, "unknown.py", UNKNOWN), monkeypatch)
    assert anatomy.report.verdict is Verdict.UNDECIDED
    line = line_with(anatomy, "scores = ")
    assert "attn_scores" in [made.name for made in line.makes]  # a part of it is right
    assert str(line.makes[-1]) == "scores (2, 6, 7, 7)"
    assert line.mark == ""


WITH_CACHE = (
    TOGETHER.replace("forward(self, x)", "forward(self, x, past_kv=None)")
    .replace(
        "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
        """        if past_kv is not None:
            k, v = torch.cat([past_kv[0], k], dim=2), torch.cat([past_kv[1], v], dim=2)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        corner = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        y = torch.softmax(scores.masked_fill(~corner, -torch.inf), -1) @ v
""",
    )
    .replace(".reshape(b, t, c))", ".reshape(b, t, c)), (k, v)")
)


@pytest.mark.slow
def test_a_line_that_is_wrong_with_a_cache_alone_says_so_beside_right_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anatomy = explained(written(tmp_path, "cached.py", WITH_CACHE), monkeypatch)
    assert [fault.id for fault in anatomy.report.faults] == ["causal-corner"]
    wrong = next(line for line in anatomy.lines if line.mark == "wrong")
    assert wrong.note.endswith("those of the whole sequence at once, where that changes nothing.")


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_what_is_imported_is_explained_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scores.py").write_text("def scored(query, key):\n    return query @ key.swapaxes(-1, -2)\n")
    Path("mine.py").write_text(
        "import numpy as np\n\nfrom scores import scored\n\n\n"
        "def attention(query, key, value):\n"
        "    scores = scored(query, key) / np.sqrt(query.shape[-1])\n"
        "    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
        "    return weights / weights.sum(axis=-1, keepdims=True) @ value\n"
    )
    anatomy = explain(Request("mine.py"))
    assert anatomy.report.verdict is Verdict.RIGHT
    assert [(line.file, line.line) for line in anatomy.lines] == [
        *(("scores.py", number) for number in (1, 2)),
        *(("mine.py", number) for number in (6, 7, 8, 9)),
    ]
    made = [made.name for line in anatomy.lines if line.file == "scores.py" for made in line.makes]
    assert made == ["key", "attn_scores"]
    text = anatomy_text(anatomy, Console(width=100, file=io.StringIO()))
    assert text.index("scores.py\n") < text.index("def scored") < text.index("mine.py\n") < text.index("def attention")


def test_a_notebook_is_explained_cell_by_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (SCRIPTS / "wrong" / "softmax_dim_0.py").read_text(encoding="utf-8")
    inputs, _, rest = source.partition("attn_scores")
    anatomy = explained(
        written(tmp_path, "n.ipynb", notebook("%matplotlib inline", inputs, f"%%time\nattn_scores{rest}")), monkeypatch
    )
    wrong = line_with(anatomy, "dim=0")
    assert (wrong.mark, wrong.cell, wrong.line) == ("wrong", 3, 3)
    assert line_with(anatomy, "%matplotlib").cell == 1
    assert anatomy.report.line is not None
    assert (anatomy.report.line.file, anatomy.report.line.line) == ("n.ipynb cell 3", 3)
    assert "cell 3\n" in as_text(anatomy)


def test_a_class_in_a_notebook_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = DEMO.read_text(encoding="utf-8").partition("class ")
    file = written(tmp_path, "n.ipynb", notebook("!pip list\n" + cells[0], "".join(cells[1:])))
    anatomy = explained(file, monkeypatch, "n.ipynb:CausalAttention")
    assert [fault.id for fault in anatomy.report.faults] == ["causal-one-ahead"]
    assert line_with(anatomy, "diagonal=").mark == "wrong"
    assert anatomy.report.line is not None
    assert anatomy.report.line.file == "n.ipynb cell 2"


def test_programs_read_the_same(wrong: Anatomy) -> None:
    answer = json.loads(anatomy_to_json(wrong))
    assert (answer["schema"], answer["file"], answer["verdict"]) == (1, "softmax_dim_0.py", "wrong")
    assert set(answer["lines"][0]) == {"line", "cell", "file", "code", "makes", "mark", "note"}
    scores = next(line for line in answer["lines"] if line["code"].startswith("attn_scores"))
    assert scores["mark"] == "right"
    assert scores["makes"] == [
        {
            "name": "attn_scores",
            "stage": "scores",
            "axes": ["query", "key"],
            "shape": [6, 6],
            "product": "(query channel)(channel key) -> (query key)",
            "numbers": "(6 x 3)(3 x 6) = (6 x 6)",
            "note": "",
        }
    ]
    assert answer["report"]["faults"][0]["id"] == "softmax-over-queries"


@pytest.mark.slow
def test_a_class_that_cannot_be_run_is_explained_up_to_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = TOGETHER.replace("F.scaled_dot_product_attention(q, k, v, is_causal=True)", "q @ k")
    anatomy = explained(written(tmp_path, "failing.py", failing), monkeypatch)
    assert anatomy.report.verdict is Verdict.FAILED
    made = line_with(anatomy, "q, k, v = ").makes[-1]
    assert (made.name, list(made.axes)) == ("q, k, v", ["batch", "heads", "tokens", "head_dim"])
    assert line_with(anatomy, "y = ").mark == "wrong"
    assert line_with(anatomy, "y = ").note.startswith("q @ k: q (batch heads tokens head_dim)")
    assert line_with(anatomy, "return").mark == ""


def test_a_script_that_stops_is_marked_where_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (SCRIPTS / "right" / "article.py").read_text(encoding="utf-8")
    stopping = re.sub(r"attn_scores = .*", "attn_scores = inputs @ inputs", source)
    anatomy = explained(written(tmp_path, "stops.py", stopping), monkeypatch)
    stop = line_with(anatomy, "attn_scores = ")
    assert (anatomy.report.verdict, stop.mark) == (Verdict.FAILED, "wrong")
    assert stop.note.startswith("it stops here: RuntimeError: mat1 and mat2")


@pytest.mark.slow
def test_exit_codes_of_the_command(command: Qkv) -> None:
    right = command("explain", "article.py")
    assert right.returncode == 0
    assert "(query key)(key channel) -> (query channel)" in right.stdout
    assert command("explain", "softmax_dim_0.py", "--format", "json").returncode == 1
    assert command("explain").returncode == 2
    missing = command("explain", "nothing.py")
    assert missing.returncode == 4
    assert "no such file: nothing.py" in missing.stdout


def test_check_judges_a_script_in_the_same_way(command: Qkv) -> None:
    wrong = command("check", "softmax_dim_0.py", "--format", "json")
    assert wrong.returncode == 1
    answer = json.loads(wrong.stdout)
    assert answer["candidate"]["kind"] == "script"
    assert (answer["line"]["line"], answer["faults"][0]["id"]) == (16, "softmax-over-queries")
    refused = command("check", "article.py", "--gradients")
    assert refused.returncode == 2
    assert "article.py is a script" in " ".join(refused.stderr.split())
