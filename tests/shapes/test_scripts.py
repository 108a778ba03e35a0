"""``qkv shapes`` of a plain script and of a notebook: what its lines make, in its own sizes."""

from __future__ import annotations

import json
from pathlib import Path

from qkv.request import Request
from qkv.shaper import sheet_of
from qkv.shapes import Sheet, sheet_text

SCRIPT = """\
import torch

inputs = torch.rand(6, 3)
W_query, W_key = torch.rand(3, 2), torch.rand(3, 2)
attn_scores = (inputs @ W_query) @ (inputs @ W_key).T
attn_weights = torch.softmax(attn_scores / 2**0.5, dim=-1)
context = attn_weights @ inputs
"""


def sheet(folder: Path, text: str, name: str = "script.py") -> Sheet:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return sheet_of(Request(str(file)), {})


def test_what_a_script_makes(tmp_path: Path) -> None:
    found = sheet(tmp_path, SCRIPT)
    assert (found.why, found.exit_code, found.warnings) == ("", 0, ())
    by_name = {line.makes: line for line in found.lines if line.makes}
    assert {name: (line.line, line.shape.names, line.shape.sizes) for name, line in by_name.items()} == {
        "inputs": (3, "(token channel)", (6, 3)),
        "W_query": (4, "(in out)", (3, 2)),
        "W_key": (4, "(in out)", (3, 2)),
        "attn_scores": (5, "(query key)", (6, 6)),
        "attn_weights": (6, "(query key)", (6, 6)),
        "context": (7, "(query channel)", (6, 3)),
    }
    assert [str(one) for one in by_name["context"].products] == [
        "(query key)(key channel) -> (query channel), (6 x 6)(6 x 3) = (6 x 3)"
    ]
    assert "tried with token 6" in sheet_text(found)


def test_equal_sizes_of_a_script_are_warned_of(tmp_path: Path) -> None:
    found = sheet(tmp_path, SCRIPT.replace("rand(6, 3)", "rand(3, 3)").replace("rand(3, 2)", "rand(3, 3)"))
    assert any(warning.startswith("with 3 channel and 3 token") for warning in found.warnings)


def test_a_script_that_stops_has_the_lines_before(tmp_path: Path) -> None:
    found = sheet(tmp_path, SCRIPT.replace("attn_weights @ inputs", "attn_weights @ W_key"))
    assert found.exit_code == 4
    assert found.lines[-1].makes == "attn_weights"
    assert "script.py:7: RuntimeError" in found.why
    assert "W_key (3 x 2)" in found.hint


def test_a_notebook_s_lines_stand_in_cells(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": part} for part in SCRIPT.split("\n", 4)]
    found = sheet(tmp_path, json.dumps({"cells": cells}), "n.ipynb")
    assert [(line.file, line.line) for line in found.lines if line.makes == "context"] == [("cell 5", 3)]


def test_a_loop_counts_and_several_results_share_a_line(tmp_path: Path) -> None:
    source = (Path(__file__).parents[1] / "scripts" / "right" / "fused_numpy_slices.py").read_text(encoding="utf-8")
    found = sheet(tmp_path, source)
    assert [line.makes for line in found.lines if "split" in line.code] == ["q, k, v"]
    assert [line.times for line in found.lines if line.code == "p @ v[:, s]"] == [2]


def test_a_script_that_ends_its_process_says_so(tmp_path: Path) -> None:
    found = sheet(tmp_path, "import os\nos._exit(7)\nx = y @ z\n")
    assert "ended the process with exit code 7" in found.why
