"""`predict_shapes(candidate)` and `qkv shapes FILE`: the shapes of a candidate's own code, rules and warnings."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmarks.styles import style_name, styles

import qkv
from command_line import qkv_in
from qkv.adapters import choosing
from qkv.adapters.sources import parsed_file
from qkv.shapes import Line, Sheet, sheet_text, sheet_to_json

STYLES = {style_name(style): style for style in styles()}
SAID: dict[str, dict[str, Any]] = {"interleaved_window": {"causal": True, "window": 5}}
"""What has to be said of a style for it to be built: a window that its class needs and has no default for."""

QUICK = {"article_multi_head", "article_wrapper", "numpy_td", "numpy_weights", "flash_bthd", "time_first"}
SLOW = pytest.mark.slow

MODULE = """import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1).bool())

    def forward(self, x):
        b, num_tokens, _ = x.shape
        queries = self.W_query(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        keys = self.W_key(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        values = self.W_value(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3) / self.head_dim**0.5
        attn_scores = attn_scores.masked_fill(self.mask[:num_tokens, :num_tokens], -torch.inf)
        context = torch.softmax(attn_scores, dim=-1) @ values
        return self.out_proj(context.transpose(1, 2).reshape(b, num_tokens, -1))
"""


def module_of(folder: Path, source: str, name: str = "code") -> ModuleType:
    """The module that a file with this text makes."""
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"_shaped_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sheet_of(folder: Path, source: str, name: str | None = None, spec: Any = None, **said: Any) -> Sheet:
    """The sheet of the attention in a file with this text, run in this process."""
    module = module_of(folder, source)
    found = name or choosing.choose(module, parsed_file(folder / "code.py", "code.py"), "code.py")
    candidate = module
    for part in found.split("."):
        candidate = getattr(candidate, part)
    sheet = qkv.predict_shapes(candidate, spec, **said)
    assert isinstance(sheet, Sheet)
    return sheet


def edited(*edits: tuple[str, str]) -> str:
    source = MODULE
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return source


def made(sheet: Sheet, name: str) -> Line:
    """The last line that makes something of this name."""
    return [line for line in sheet.lines if line.makes == name][-1]


def ruled(sheet: Sheet, says: str) -> str:
    """What was seen where this rule was not met."""
    return next(rule.seen for rule in sheet.rules if rule.says == says)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in sorted(STYLES)])
def test_every_style_has_a_table_in_which_each_axis_has_a_name(tmp_path: Path, name: str) -> None:
    style = STYLES[name]
    sheet = sheet_of(tmp_path, style.SOURCE, style.NAME, SAID.get(name))
    assert sheet.why == ""
    assert len(sheet.lines) > 5
    assert [(line.line, line.code, line.shape.names) for line in sheet.unnamed] == []
    code = style.SOURCE.splitlines()
    for line in sheet.lines:
        assert line.code.split("(")[0].split("[")[0].split(".")[0].split(" ")[0] in code[line.line - 1]


def test_the_lines_of_a_module(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, MODULE)
    assert made(sheet, "queries").shape.names == "(batch heads tokens head_dim)"
    assert made(sheet, "attn_scores").shape.names == "(batch heads query key)"
    names = [product.names for line in sheet.lines for product in line.products]
    assert "(tokens embed_dim)(embed_dim heads*head_dim) -> (tokens heads*head_dim)" in names
    assert "(query head_dim)(head_dim key) -> (query key)" in names
    assert "(query key)(key head_dim) -> (query head_dim)" in names
    scores = next(line for line in sheet.lines if line.products and line.products[0].result.names == "(query key)")
    assert scores.times == sheet.sizes["batch"] * sheet.sizes["heads"]
    assert len(set(sheet.sizes.values())) == len(sheet.sizes)
    assert sheet.lines[-1].shape.names == "(batch tokens heads*head_dim)"


def test_keys_before_queries_are_rows(tmp_path: Path) -> None:
    turned = edited(
        ("queries @ keys.transpose(2, 3)", "(keys @ queries.transpose(2, 3)).transpose(2, 3)"),
    )
    sheet = sheet_of(tmp_path, turned)
    product = next(line for line in sheet.lines if line.code == "keys @ queries.transpose(2, 3)")
    assert product.shape.names == "(batch heads key query)"
    assert made(sheet, "attn_scores").shape.names == "(batch heads query key)"


def test_a_function_of_numpy_tells_queries_from_keys(tmp_path: Path) -> None:
    source = (
        "import numpy as np\n\n\ndef attention(query, key, value):\n"
        "    scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5\n"
        "    weights = np.exp(scores - scores.max(-1, keepdims=True))\n"
        "    weights = weights / weights.sum(-1, keepdims=True)\n"
        "    return weights @ value\n"
    )
    sheet = sheet_of(tmp_path, source)
    assert made(sheet, "weights").shape.names == "(batch heads query key)"
    assert made(sheet, "weights").shape.sizes[-2:] == (sheet.sizes["query"], sheet.sizes["key"])
    assert sheet.lines[-1].products[0].names == "(query key)(key head_dim) -> (query head_dim)"
    assert "there may be another number of keys than of queries" in sheet.free


@pytest.mark.parametrize(
    ("edits", "says", "seen"),
    [
        (
            [("        self.num_heads, self.head_dim", "        assert d_out % num_heads == 0, 'share it evenly'\n"
              "        self.num_heads, self.head_dim")],
            "d_out must be a multiple of num_heads",
            "AssertionError: share it evenly",
        ),
        ([], "d_out must be a multiple of num_heads", "2 of 172 channels are left over"),
        (
            [("self.out_proj = nn.Linear(d_out, d_out)", "self.out_proj = nn.Identity()"),
             ("self.W_query(x).view", "self.W_query(x)[..., : self.num_heads * self.head_dim].view"),
             ("self.W_key(x).view", "self.W_key(x)[..., : self.num_heads * self.head_dim].view"),
             ("self.W_value(x).view", "self.W_value(x)[..., : self.num_heads * self.head_dim].view")],
            "d_out must be a multiple of num_heads",
            "no error, but the output is (11, 7, 170) in place of (11, 7, 172): 2 of 172 channels are dropped",
        ),
        ([], "x must have d_in channels", "and self.W_query takes embed_dim = 46 channels"),
        ([], "a sequence has at most context_length tokens", "was made for 29 tokens at most, and these are 30"),
        (
            [("return self.out_proj(context.transpose(1, 2).reshape(b, num_tokens, -1))",
              "return self.out_proj(context.transpose(1, 2).reshape(b, num_tokens, -1)).squeeze(0)")],
            "one sequence alone can't be given",
            "the output is (7, 170) in place of (1, 7, 170)",
        ),
        (
            [("queries @ keys", "(queries.unflatten(-1, (2, -1)).flip(-2).flatten(-2)) @ keys")],
            "d_out / num_heads, which is head_dim, must be even",
            "35",
        ),
        (
            [("def __init__(self, d_in, d_out", "def __init__(self, d_in, d_out"),
             ("return self.out_proj(context", "return x + self.out_proj(context")],
            "d_in must be equal to d_out",
            "the last axis is embed_dim = 46 in the first and heads*head_dim = 170 in the second",
        ),
    ],
)  # fmt: skip
def test_a_rule_is_found_however_it_shows(tmp_path: Path, edits: list[tuple[str, str]], says: str, seen: str) -> None:
    assert seen in ruled(sheet_of(tmp_path, edited(*edits)), says)


IN_BLOCKS = """import torch


def attention(query, key, value):
    largest, total, mixed = -torch.inf, 0.0, 0.0
    for j in range(0, key.shape[-2], 4):
        k, v = key[..., j : j + 4, :], value[..., j : j + 4, :]
        scores = (
            query
            @ k.transpose(-2, -1)
        ) / query.shape[-1] ** 0.5
        now = torch.maximum(torch.as_tensor(largest), scores.amax(-1, keepdim=True))
        kept, weights = torch.exp(largest - now), torch.exp(scores - now)
        total, mixed = total * kept + weights.sum(-1, keepdim=True), mixed * kept + weights @ v
        largest = now
    return mixed / total
"""


def test_a_number_is_no_axis_by_chance_and_a_block_is_as_long_as_it_is_at_most(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, IN_BLOCKS)
    assert made(sheet, "k").shape.names == "(batch heads ≤4 head_dim)"  # and not heads-1
    assert made(sheet, "scores").shape.names == "(batch heads query ≤4)"
    assert made(sheet, "total").shape.names == "(batch heads query 1)"


def test_what_a_part_of_an_expression_makes_has_no_name(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, IN_BLOCKS)
    assert [line.makes for line in sheet.lines if "k.transpose" in line.code] == ["", "", "scores"]


def test_sizes_that_nobody_can_tell_apart_are_tried_as_others(tmp_path: Path) -> None:
    said = {"num_heads": 8, "embed_dim": 64}
    sheet = sheet_of(tmp_path, MODULE, spec=said, sizes={"heads": 8, "head_dim": 8, "tokens": 5})
    assert len(set(sheet.sizes.values())) == len(sheet.sizes)
    assert made(sheet, "queries").shape.names == "(batch heads tokens head_dim)"
    assert [warning.partition(" an ")[0] for warning in sheet.warnings] == ["with 8 head_dim and 8 heads"]


def test_that_nothing_was_seen_of_it_is_said() -> None:
    assert "no line of it is shown" in sheet_text(Sheet("compiled"))
    assert "no line" not in sheet_text(Sheet("broken", why="it raised"))


def test_a_layer_of_torch_gives_what_it_gives_in_the_end(tmp_path: Path) -> None:
    source = (
        "from torch import nn\n\n\nclass Attention(nn.Module):\n    def __init__(self, embed_dim, num_heads):\n"
        "        super().__init__()\n"
        "        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)\n\n"
        "    def forward(self, x):\n        return self.attn(x, x, x, need_weights=False)[0]\n"
    )
    shape = sheet_of(tmp_path, source).lines[-1].shape  # inside, tokens come before sequences
    assert shape.names == "(batch tokens heads*head_dim)"


def test_heads_of_key_and_value(tmp_path: Path) -> None:
    source = (
        "import torch\n\n\ndef attention(q, k, v):\n"
        '    """q: (batch, heads, tokens, dim), k and v: (batch, kv_heads, tokens, dim)"""\n'
        "    group = q.shape[1] // k.shape[1]\n"
        "    k, v = (one.repeat_interleave(group, dim=1) for one in (k, v))\n"
        "    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v\n"
    )
    sheet = sheet_of(tmp_path, source, spec={"num_heads": 6, "num_kv_heads": 2})
    assert sheet.sizes["heads"] == 6
    assert sheet.sizes["kv_heads"] == 2


@pytest.mark.parametrize(
    ("sizes", "warned"),
    [
        ({"heads": 4, "tokens": 4, "head_dim": 8}, ["4 heads and 4 tokens"]),
        ({"heads": 4, "tokens": 8, "head_dim": 8}, ["8 head_dim and 8 tokens"]),
        ({"heads": 4, "tokens": 6, "head_dim": 8}, []),
        ({"batch": 2, "heads": 2, "tokens": 6}, ["2 batch and 2 heads"]),
    ],
)
def test_equal_sizes_that_hide_a_transpose(tmp_path: Path, sizes: dict[str, int], warned: list[str]) -> None:
    warnings = sheet_of(tmp_path, MODULE, sizes=sizes).warnings
    said = [re.match(r"with (\d+ \w+) and (\d+ \w+)", warning) for warning in warnings]
    pairs = {frozenset(match.groups()) for match in said if match is not None}
    assert len(pairs) == len(warnings)
    assert pairs >= {frozenset(pair.split(" and ")) for pair in warned}
    assert bool(pairs) == bool(warned)


def test_default_sizes_of_a_class_are_looked_at(tmp_path: Path) -> None:
    source = edited(("d_in, d_out, context_length, num_heads", "d_in=16, d_out=16, context_length=32, num_heads=4"))
    assert any("4 head_dim and 4 heads" in warning for warning in sheet_of(tmp_path, source).warnings)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (("@ keys.transpose(2, 3)", "@ keys"), ["code.py:18: queries @ keys: queries (batch heads tokens head_dim)",
                                                "Did you forget keys.transpose(-2, -1)?"]),
        ((".reshape(b, num_tokens, -1))", ".reshape(b, -1))"), ["code.py:21: self.out_proj(", "takes heads*head_dim"]),
        (("self.mask[:num_tokens, :num_tokens]", "self.mask"), ["code.py:19", "Cut it: self.mask[:tokens, :tokens]"]),
    ],
)  # fmt: skip
def test_a_shape_error_is_explained_in_names(tmp_path: Path, edit: tuple[str, str], says: list[str]) -> None:
    sheet = sheet_of(tmp_path, edited(edit))
    assert sheet.exit_code == 4
    for part in says:
        assert part in sheet.hint
    assert sheet.hint in " ".join(sheet_text(sheet).split())


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(MODULE)
    done = qkv_in(tmp_path, "shapes", "attention.py", "--heads", "4", "--query-len", "4", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "CausalAttention  attention.py:5" in done.stdout
    assert "(query key)(key head_dim) -> (query head_dim)" in done.stdout
    assert "rule     d_out must be a multiple of num_heads" in done.stdout
    assert "warning  with 4 heads and 4 tokens" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_command_on_what_fails_in_json(tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(edited(("@ keys.transpose(2, 3)", "@ keys")))
    done = qkv_in(tmp_path, "shapes", "attention.py", "--format", "json")
    assert done.returncode == 4
    form = json.loads(done.stdout)
    assert form["schema"] == 1
    assert "Did you forget keys.transpose(-2, -1)?" in form["hint"]
    assert [line["makes"] for line in form["lines"] if line["makes"]] == ["queries", "keys", "values"]  # until it fails
    assert form["lines"][-1]["axes"] == ["batch", "heads", "tokens", "head_dim"]


def test_json_says_what_the_table_says(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, MODULE)
    form = json.loads(sheet_to_json(sheet))
    assert [line["axes"] for line in form["lines"]] == [list(line.shape.axes) for line in sheet.lines]
    assert {rule["says"] for rule in form["rules"]} == {rule.says for rule in sheet.rules}


def test_check_explains_a_shape_error_too(tmp_path: Path) -> None:
    module = module_of(tmp_path, edited(("@ keys.transpose(2, 3)", "@ keys")))
    report = qkv.check(module.CausalAttention)
    assert report.verdict == "failed"
    assert "Did you forget keys.transpose(-2, -1)?" in report.hint
