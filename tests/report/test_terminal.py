"""The report in the terminal: what a person reads is under snapshot, and a terminal's own rules are kept."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from command_line import FILES
from qkv.debugger import judge
from qkv.report import CandidateWords, NamedFault, Patch, ProbeResult, Report, Verdict
from qkv.report.plain import encodable, harmless
from qkv.report.terminal import as_text, print_report, report_text, terminal
from qkv.request import Request


def plain(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """A wrong attention of NumPy as ``qkv check wrong.py`` reports it."""
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text(FILES["wrong.py"], encoding="utf-8")
    return judge(Request("wrong.py", repeat="qkv check wrong.py"))


def test_a_wrong_attention_as_a_person_reads_it(wrong: Report, snapshot: SnapshotAssertion) -> None:
    text = report_text(wrong, plain())
    assert not re.search(r"[ \t]$|\x1b", text, re.MULTILINE)
    assert text == snapshot
    console = plain()
    print_report(wrong, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == text


def test_a_report_prints_as_its_text_and_its_repr_is_short(wrong: Report) -> None:
    assert str(wrong) == as_text(wrong).rstrip()
    assert f"{wrong}".splitlines()[0].startswith("✗ wrong  ")
    assert repr(wrong) == f"<Report: wrong, {wrong.candidate.name}, scale-missing>"


def test_what_was_printed_begins_with_a_whole_line(wrong: Report) -> None:
    rows = "".join(f"        [0.{number}, 0.5000],\n" for number in range(1000, 1050))
    text = report_text(replace(wrong, printed=rows), plain())
    assert "  printed   …\n                    [0.10" in text
    assert text.count("[0.10") == 399 // len("        [0.1000, 0.5000],\n")


@pytest.mark.parametrize("width", [60, 70, 200])
def test_nothing_is_cut_off_at_any_width(wrong: Report, width: int) -> None:
    text = report_text(wrong, plain(width), verbose=True)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert "scale-missing" in words
    assert "…" not in words.replace(" …", "")
    first = wrong.first_disagreement
    assert first is not None
    assert f"expected {first.expected:.4f}, got {first.got:.4f}" in words
    # A folded line of code is whole once its pieces are put together again.
    repair = wrong.faults[0].repair.strip()
    assert "".join(repair.split()) in "".join(text.split())


def test_a_line_of_a_diff_that_is_too_long_does_not_read_as_two() -> None:
    long = "    keys = keys.repeat_interleave(number_of_query_heads // number_of_key_heads, dim=1)  # one for each"
    diff = f"--- a\n+++ b\n@@ -3,2 +3,2 @@\n-    k = 1\n-    if k:\n-        v = 2\n+{long}\n+    v = 3"
    report = replace(failed(), verdict=Verdict.WRONG, patch=Patch("mine.py", 3, "", "", diff))
    lines = [line[12:] for line in report_text(report, plain(70)).splitlines()]
    begin = lines.index("  - k = 1")
    assert lines[begin + 1 : begin + 3] == ["  - if k:", "  -     v = 2"]
    signs = [line[:4] for line in lines[begin + 3 :] if line.strip()]
    end = lines.index("  + v = 3")
    assert signs[0] == "  + "
    assert all(line.startswith(" " * 12) for line in lines[begin + 4 : end])
    pieces = [lines[begin + 3].removeprefix("  + "), *lines[begin + 4 : end]]
    assert "".join("".join(pieces).split()) == "".join(long.split())


def failed(**parts: str) -> Report:
    return Report(Verdict.FAILED, CandidateWords("attention", "mine.py"), **parts)  # type: ignore[arg-type]


EVIL = "\x1b[2J\x1b]0;title\x07[bold]markup[/] \u202e\x9b31m \x00end\nnext"


def test_what_a_candidate_says_can_not_move_the_cursor() -> None:
    report = failed(why=EVIL, detail=EVIL, hint=EVIL, printed=EVIL)
    text = report_text(replace(report, candidate=CandidateWords(EVIL, EVIL)), plain())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "[2J]0;title[bold]markup[/]" in text


def test_no_style_is_lost_with_the_spaces_at_the_end_of_a_line() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    text = report_text(failed(why="short"), console)
    assert "\x1b[1m" in text
    assert not re.search(r" (?:\x1b\[[0-9;]*m)*$", text, re.MULTILINE)
    assert text.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9][0-9;]*m", text))


def test_every_encoding_is_served() -> None:
    assert encodable("✓ … \u00d7 é →", "utf-8") == "✓ … \u00d7 é →"
    assert encodable("✓ … \u00d7 é →", "ascii") == r"ok ... x \xe9 ->"
    assert encodable("✓ … \u00d7 é →", "cp1252") == "ok … \u00d7 é ->"
    assert encodable("\udcff", "utf-8") == r"\udcff"


def test_only_text_is_changed_on_its_way_to_the_terminal() -> None:
    fault = NamedFault("a-b", "scale", "t\x07", "e", "r", "", 0.5)
    report = Report(Verdict.WRONG, CandidateWords("f"), faults=[fault], rows=(), wrong=[[True]])
    cleaned = harmless(report)
    assert cleaned == replace(report, faults=[replace(fault, title="t")])


def test_a_probe_that_could_not_be_given_is_counted_and_told_on_demand() -> None:
    probes = [ProbeResult("ordinary", "most faults", True, 0.0, 1e-6), ProbeResult("long", "", None, None, None, "why")]
    report = replace(failed(), verdict=Verdict.RIGHT, probes=probes)
    told = report_text(report, plain(), verbose=True)
    assert "could not be called with long: why" in told
    assert "1 of 1 probes agree" in told


def test_the_terminal_is_never_too_narrow_and_shows_no_colours_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in (("0", 80), ("5", 60), ("120", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal().width == width
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal().color_system is None


def test_an_undecided_one_says_which_rows_differ() -> None:
    report = Report(Verdict.UNDECIDED, CandidateWords("f"), why="unclear", spread="rows from 5 on are wrong")
    assert "  where     rows from 5 on are wrong\n" in report_text(report, plain())
