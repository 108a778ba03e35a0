"""``qkv mask``: a mask as a picture, and how much of it is computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from qkv.cli.commands import group

WINDOW = """\
query \\ key  0       8
          0  .####.......
          1  ..####......
          2  ...####.....

causal & window(4): queries at positions 4 to 6, keys at 0 to 11.
The mask allows 33.3% of all pairs; computed in blocks of 2 queries it takes 38.9% of the work of full attention.
"""


def test_a_mask_is_drawn_with_the_share_that_is_computed() -> None:
    sizes = ["--query-len", "3", "--key-len", "12", "--query-offset", "4", "--block", "2"]
    done = CliRunner().invoke(group, ["mask", "causal & window(4)", *sizes, "--ascii"])
    assert done.output == WINDOW
    tiny = CliRunner().invoke(group, ["mask", "causal", "--query-len", "8"]).output
    assert "of all pairs" not in tiny
    long = CliRunner().invoke(group, ["mask", "causal", "--query-len", "70000"]).output
    assert long.endswith("\nComputed in blocks of 128 queries it takes 50.1% of the work of full attention.\n")
    assert "·████·" in CliRunner().invoke(group, ["mask", "causal & window(4)", *sizes]).output
    for encoding in ("ascii", "latin-1"):
        plain = CliRunner(charset=encoding).invoke(group, ["mask", "causal & window(4)", *sizes]).output
        assert plain.replace("·", ".") == WINDOW


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["causal &"], 'for instance: qkv mask "causal & window(5)'),
        (["causal", "--query-offset", "left"], "--query-offset is 'left'; write 'bottom_right', 'top_left' or"),
        (["causal", "--query-len", "0"], "0 is not in the range"),
        (["window(0)"], "window is 0, and must be at least 1"),
        (["causal", "--figure", "mask.gif"], "--figure is 'mask.gif', and must end in one of .svg, .pdf, .png"),
        (["causal", "--figure", "no_such_folder/mask.svg"], "can't be written: No such file or directory"),
        (["causal", "--query-len", "100000", "--figure", "mask.svg"], "100,000 keys, too many for a figure"),
    ],
)
def test_wrong_arguments(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(group, ["mask", *arguments])
    assert done.exit_code == 2
    assert says in done.output


def test_a_mask_is_a_figure_too(tmp_path: Path) -> None:
    file = tmp_path / "mask.svg"
    done = CliRunner().invoke(group, ["mask", "causal & window(4)", "--query-len", "3", "--figure", str(file)])
    assert done.exit_code == 0, done.output
    assert {">may not attend<", ">causal &amp; window(4)<"} <= set(re.findall(">[^<>]+<", file.read_text()))
