"""Options that can't be read, or contradict each other: exit code 2, and a message that speaks of the flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qkv.cli.commands import group


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


def failure(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


WRONG: list[tuple[list[str], list[str]]] = [
    (["--heads", "0"], ["--heads is 0, and must be a whole number of 1 or more", "instance: --heads 6"]),
    (["--heads", "1000000000"], ["--heads is 1000000000, and must be 65536 at most"]),
    (["--heads", "six"], ["'--heads'", "'six' is not a valid integer"]),
    (["--heads", "7", "--kv-heads", "3"], ["--kv-heads is 3 for --heads 7", "--kv-heads must divide --heads", "1, 7"]),
    (["--query-offset", "abc"], ["--query-offset is 'abc'", '"top_left" or a whole number']),
    (["--query-offset", "\u00b2"], ["--query-offset is '\u00b2'"]),
    (["--query-offset", "--5"], ["--query-offset is '--5'"]),
    (["--query-offset", "9" * 25], ["--query-offset is 999", "2000000000 at most"]),
    (["--query-offset", "9" * 5000], ["--query-offset is '999"]),
    (["--scale", "nan"], ["--scale is nan, and must be a finite number"]),
    (["--scale", "1e300"], ["--scale is 1e+300, and must be 1e+30 at most"]),
    (["--softcap", "0"], ["--softcap is 0.0, and must be above 0; leave the flag out for no softcap"]),
    (["--dropout-p", "2"], ["--dropout-p is 2.0"]),
    (["--window", "9" * 25], ["--window is 999", "2000000000 at most"]),
    (["--mask", "causal", "--window", "3"], ["--mask is 'causal' and --window is given too", '--mask "window(3) & (c']),
    (["--prefix", "3"], ["--prefix is 3 without causal", 'write --mask "prefix(3)"']),
    (["--rope-dims", "3"], ["--rope-dims is 3, and must be an even number"]),
    (["--rope", "halves", "--head-dim", "7"], ["--head-dim is 7", "an even --rope-dims"]),
    (["--rope-base", "0"], ["--rope-base is 0.0, and must be above 0"]),
    (["--layer", "3"], ["--layer 3 of which model?", "--spec config.json"]),
    (["--layer", "-5"], ["'--layer'"]),
    (["--spec", ""], ["--spec is empty"]),
    (["--spec", "no/where.json"], ["there is no file 'no/where.json'"]),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=lambda value: " ".join(value)[:30])
def test_a_wrong_flag_is_named(arguments: list[str], says: list[str]) -> None:
    said = failure("spec", *arguments)
    for part in says:
        assert part in said
    assert "{" not in said


CHECK: list[tuple[list[str], list[str]]] = [
    ([], ["which file? qkv check my_attention.py"]),
    ([""], ["which file?"]),
    (["a.py", "--time-limit", "nan"], ["--time-limit is 'nan'", "--time-limit 60"]),
    (["a.py", "--time-limit", "inf"], ["--time-limit is 'inf'"]),
    (["a.py", "--time-limit", "soon"], ["--time-limit is 'soon'"]),
    (["a.py", "--memory-limit", "lots"], ["--memory-limit is 'lots'", "--memory-limit 4G"]),
    (["a.py", "--memory-limit", "10M"], ["--memory-limit is '10M'", "100M or more"]),
    (["a.py", "--memory-limit", "99999T"], ["--memory-limit is '99999T'", "--memory-limit 0"]),
    (["a.py", "--init", "{"], ["--init: ", "--init '{\"d_in\": 48}'"]),
    (["a.py", "--call", "[1]"], ["--call is '[1]', which is no object", "--call '{\"start_pos\": 0}'"]),
    (["a.py", "--init", "[" * 100_000], ["--init"]),
    (["a.py", "--weights", "q"], ["--weights q_proj=W_query.weight"]),
]


@pytest.mark.parametrize(("arguments", "says"), CHECK, ids=lambda value: " ".join(value)[:30])
def test_what_belongs_to_the_candidate_is_read_before_it_is_opened(arguments: list[str], says: list[str]) -> None:
    said = failure("check", *arguments)
    for part in says:
        assert part in said


def test_a_file_and_flags_make_one_spec(tmp_path: Path) -> None:
    file = tmp_path / "spec.TOML"
    file.write_text('num_heads = 6\nmask = "~causal"\n[rope]\npairing = "adjacent"\ndims = 4\n')
    given = ["--spec", str(file), "--kv-heads", "2", "--rope-base", "500", "--head-dim", "8"]
    done = run("spec", *given)
    assert done.output == (
        "6 query heads over 2 key/value heads of 8 channels, scores times 1/sqrt(8), mask ~causal, rope on adjacent "
        "(base 500, first 4 channels)\n"
    )
    assert "--layer 1 is for a Hugging Face config" in failure("spec", "--spec", str(file), "--layer", "1")
    assert "rope dims is 4, more than the head's 2" in failure("spec", "--spec", str(file), "--head-dim", "2")


def test_a_whole_spec_names_both_numbers_of_heads(tmp_path: Path) -> None:
    (file := tmp_path / "spec.json").write_text('{"num_kv_heads": 2}')
    (candidate := tmp_path / "attention.py").write_text("def attention(q, k, v):\n    return q\n")
    assert 'num_heads is missing, in what is a whole spec. Write for instance: "num_heads": 6' in failure(
        "check", str(candidate), "--spec", str(file)
    )
    assert "6 query heads over 2 key/value heads" in run("spec", "--kv-heads", "2").output


@pytest.mark.parametrize("pair", [("500M", 500 * 2**20), ("4G", 4 * 2**30), ("1.5 GiB", 3 * 2**29), ("0", 0)])
def test_memory_is_read_with_its_unit(pair: tuple[str, Any]) -> None:
    from qkv.cli.values import Memory

    assert Memory().convert(pair[0], None, None) == pair[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--heads", "60000"), "--heads is 60000, and candidates of at most 1,024 are judged"),
        (("--length", "2000000000"), "2000000000 is not in the range"),
    ],
)
def test_sizes_of_no_attention_are_bad_usage(qkv: Any, flags: tuple[str, ...], said: str) -> None:
    done = qkv("check", "right.py", *flags)
    assert done.returncode == 2
    assert said in done.stderr
