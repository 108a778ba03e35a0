"""``qkv plan``: how a call would be computed, in words and as JSON."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

import qkv
from qkv.cli.commands import group

SIZES = ["--query-len", "1000", "--heads", "8", "--kv-heads", "2", "--head-dim", "16"]


def told(*arguments: str) -> str:
    done = CliRunner().invoke(group, ["plan", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_plan_is_told_in_words() -> None:
    heads = [torch.empty(1, count, 1000, 16) for count in (8, 2, 2)]
    plan = qkv.plan(*heads, mask=qkv.causal() & qkv.window(64))
    lines = told("--mask", "causal & window(64)", *SIZES).splitlines()
    assert lines[0] == (
        "causal & window(64): queries at positions 0 to 999, keys at 0 to 999; 8 query heads over 2 of keys and values."
    )
    assert lines[1:-1] == str(plan).splitlines()
    assert "of the scores are skipped" in lines[1]
    assert lines[-1] == f"- {plan.share:.1%} of all scores are made with a table of what is hidden"


def test_reasons_are_told_and_shares_add_up() -> None:
    output = told("--mask", "causal", "--query-len", "1000", "--softcap", "30", "--dropout-p", "0.1")
    assert "- softcap: no fused CPU kernel has it" in output
    assert "- dropout: no fused CPU kernel has it" in output
    made = [float(line.split("%")[0].removeprefix("- ")) for line in output.splitlines() if "scores are made" in line]
    skipped = float(output.splitlines()[1].split("; ")[1].split("%")[0])
    assert sum(made) + skipped == pytest.approx(100, abs=0.15)


def test_the_plan_as_json() -> None:
    plan = json.loads(told("--mask", "causal", *SIZES, "--key-len", "1500", "--alibi", "--format", "json"))
    assert plan["kernel"] == "flash"
    computed = sum(
        tile["rows"] * tile["width"] * tile["count"] * (tile["sequences"][1] - tile["sequences"][0])
        for tile in plan["tiles"]
    )
    assert plan["share"] == pytest.approx(computed / (1000 * 1500))
    # The last query stands at the last key: half of the last 1000 keys' square is hidden.
    assert 0 <= plan["share"] - (1 - 500 / 1500) < 0.1


def test_a_value_of_another_size_and_a_mask_for_each_place_of_the_queries() -> None:
    assert "the shorter are padded" in told("--query-len", "10", "--value-dim", "3")
    assert "100.0% of the scores are skipped" in told("--mask", "causal", "--query-len", "10", "--query-offset", "-10")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing option '--query-len'"),
        (["--query-len", "0"], "0 is not in the range"),
        (["--query-len", "8", "--mask", "casual"], "did you mean 'causal'"),
        (["--query-len", "8", "--mask", "documents"], "call qkv.plan in Python, with mask=qkv.documents(ids)"),
        (["--query-len", "8", "--heads", "3", "--kv-heads", "2"], "--kv-heads is 2, and must divide the --heads"),
        (["--query-len", "8", "--query-offset", "left"], "--query-offset is 'left'; write"),
        (["--query-len", "8", "--dropout-p", "1"], "--dropout-p is 1.0, and must be from 0 to below 1"),
        (["--query-len", "8", "--softcap", "0"], "softcap is 0.0, and must be above 0"),
    ],
)
def test_wrong_arguments(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(group, ["plan", *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
