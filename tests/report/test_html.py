"""The report as one HTML file: the same document, well formed, escaped, and read as it is meant to be."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import FILES
from injected import CASES, Case
from qkv.debugger import judge
from qkv.diagnosis import Diagnosis, Explanation, Observation, under
from qkv.faults import CATALOGUE, GRADIENT_FAULTS, Variant
from qkv.report import (
    CandidateWords,
    Example,
    NamedFault,
    Patch,
    ProbeResult,
    Report,
    RowPair,
    SourceLine,
    Strength,
    Verdict,
    to_mapping,
)
from qkv.report.anatomy import Anatomy, CodeLine, Made
from qkv.report.digits import apart, number, row_texts, told_apart
from qkv.report.excerpt import excerpt_of
from qkv.report.figures import figure_of
from qkv.report.grids import text_of, triple
from qkv.report.highlighting import highlighted
from qkv.report.html import anatomy_to_html, identity_to_html, to_html
from qkv.report.identity import Estimate, Identity
from qkv.report.matrices import Matrices, unlike
from qkv.report.plain import visible
from qkv.report.terminal import as_text
from qkv.request import Request
from qkv.spec import AttentionSpec
from qkv.whereabouts import Inside, pictured

VOID = {"meta", "br", "link", "img", "input", "hr"}
EVIL = "</pre><script>alert(1)</script>&amp; \u202egnp.exe \x1b[2J \x00 \udcff"
SEEN = "</pre><script>alert(1)</script>&amp; ⟨U+202E⟩gnp.exe ⟨U+001B⟩[2J ⟨U+0000⟩ ⟨U+DCFF⟩"


class Page(HTMLParser):
    """A page as a reader has it; elements that are not closed in order are an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        own = dict(attrs)
        self.ids += [own["id"] or ""] if "id" in own else []
        self.links += [own["href"] or ""] if tag == "a" else []
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def read(html: str) -> Page:
    """The page, held to what every page is."""
    page = Page(html)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(level <= before + 1 for before, level in zip(page.headings, page.headings[1:], strict=False))
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.links) <= {f"#{one}" for one in page.ids}
    assert page.tags.count("main") == page.tags.count("title") == 1
    assert "script" not in page.tags
    assert "default-src 'none'" in html
    html.encode("utf-8")
    return page


@pytest.fixture
def wrong(report: Report) -> Report:
    """The report with all that a page draws."""
    right, got = np.eye(3), np.full((3, 3), 1 / 3)
    matrices = Matrices("attn_weights, head 1", ("query", "key"), right, got, unlike(right, got))
    fault = CATALOGUE["scale-missing"]
    named = NamedFault(fault.id, str(fault.stage), fault.title, fault.explanation, fault.repair, "", 0.0)
    return replace(
        report,
        rows=[RowPair("output of token 2", np.arange(20.0), np.arange(20.0) + 1)],
        wrong=[[False, True], [True, True]],
        faults=[named],
        example=Example("3 tokens", [("query", np.ones((1, 1, 3, 2)))], np.eye(2), np.eye(2)),
        matrices=[matrices],
        by_hand=[matrices],
        assumptions=["2 heads, as stated"],
    )


def test_all_that_the_terminal_says_stands_on_the_page(wrong: Report) -> None:
    page = read(to_html([wrong]))
    for said in (
        "✗ wrong attention", "function of query, key and value, numpy, float64 my attention.py:4",
        "first wrong: token 2 of sequence 0, output channel 3", "expected 0.2500 , got -1.5000", "key_len > 64",
        "2 heads of 8 channels", CATALOGUE["scale-missing"].explanation, "seen while it ran", "scale-ignored",
        "2 heads, as stated", "1 of 3 probes agree", "it takes no cache", "qkv check 'my attention.py'", "3 tokens",
        "(the first 12 numbers of 20)",
    ):  # fmt: skip
        assert re.sub(r"\s", "", said) in re.sub(r"\s", "", page.text), said
    assert page.text.startswith("✗ wrong · attention · scale-missing · qkv")


def test_right_undecided_and_failed_pages_say_why() -> None:
    words = CandidateWords("attention", "mine.py")
    for verdict in (Verdict.UNDECIDED, Verdict.FAILED):
        page = read(to_html([Report(verdict, words, why="because", hint="do that", detail="Traceback", printed="hi")]))
        assert all(said in page.text for said in ("because", "Try do that", "Traceback", "Printed hi", verdict.value))
    strength = Strength(3, 5, ["a-b: no mask", "c-d: gives the same numbers under this spec"])
    probes = [ProbeResult("ordinary", "most faults", True, 0.0, 1e-6)]
    page = read(to_html([Report(Verdict.RIGHT, words, strength=strength, probes=probes)]))
    assert "these probes would have shown 3 of the 4 known faults it could have" in page.text
    assert "not shownc-d" in page.text
    assert "no maska-b" in page.text


def test_what_a_candidate_says_is_escaped_and_its_tricks_are_seen(report: Report) -> None:
    said = {"why": EVIL, "hint": EVIL, "detail": EVIL, "printed": EVIL, "repeat": EVIL, "line_why": EVIL}
    candidate = CandidateWords(EVIL, EVIL, 1, EVIL, EVIL, EVIL)
    line = SourceLine(EVIL, 3, EVIL, EVIL)
    patch = Patch(EVIL, 3, EVIL, EVIL, f"--- a\n+++ b\n@@ -3 +3 @@\n-{EVIL}\n+{EVIL}", EVIL)
    for more in ({"line": line, "patch": patch}, {"line": None}):
        html = to_html([replace(report, **said, candidate=candidate, rows=[RowPair(EVIL, [1.0], [2.0])], **more)])
        page = read(html)
        assert page.text.count(SEEN) >= 8
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", html)
    identity = Identity(candidate, why=EVIL, hint=EVIL, detail=EVIL, repeat=EVIL)
    assert read(identity_to_html(identity)).text.count(SEEN) >= 5
    lines = [CodeLine(1, EVIL, [Made(EVIL, EVIL, [EVIL], [3], EVIL, EVIL, EVIL)], "wrong", EVIL)]
    assert read(anatomy_to_html(Anatomy(replace(report, candidate=candidate), lines))).text.count(SEEN) >= 8


def test_tricks_are_seen_wherever_they_stand_and_other_text_is_left_alone() -> None:
    assert visible("שלום é 😀 \t\n \u200d") == "שלום é 😀 \t\n \u200d"
    assert visible(("a\u200b", ["\u2066"])) == ("a⟨U+200B⟩", ["⟨U+2066⟩"])


def top_of(report: Report) -> str:
    """The text of a page's header: code and places on lines of their own, what is marked in brackets."""
    top = re.search("<header>.*?</header>", to_html([report]), re.DOTALL)
    assert top is not None
    text = re.sub(r"<mark>(.*?)</mark>", r"[\1]", top[0])
    return re.sub("<.*?>", "", re.sub('<span class="place">|</span>(?=<del|<ins)|</code>', "\n", text))


@pytest.mark.parametrize(("count", "shown", "more"), [(1, 1, ""), (6, 6, ""), (8, 5, "… 3 more lines below")])
def test_a_repair_of_several_lines_stands_at_the_top_too(report: Report, count: int, shown: int, more: str) -> None:
    added = [f"    x{place} = {place}" for place in range(count)]
    diff = "\n".join(["--- a", "+++ b", "@@ -7 +7,9 @@", "-    return y", *(f"+{line}" for line in added)])
    patch = Patch("my attention.py", 7, "    return y", "\n".join(added), diff)
    top = top_of(replace(report, patch=patch))
    assert re.findall("x. = .", top) == [line.strip() for line in added[:shown]]
    assert "write" in top
    assert more in top
    assert ("more line" in top) == bool(more)


def test_each_place_that_changes_stands_with_its_number_and_what_it_is_replaced_by(
    report: Report,
) -> None:
    lines = " a = 1\n-    b = a + 1\n+    b = a + 2\n c = 3\n-    d = 4\n e = 5\n"
    patch = Patch("my attention.py", 8, "", "", f"--- a\n+++ b\n@@ -7,5 +7,4 @@\n{lines}")
    top = top_of(replace(report, patch=patch))
    assert re.findall(r"my attention\.py:\d+|[\u2212+].*", top.partition("change")[2]) == [
        "my attention.py:8", "\u2212b = a + [1]", "+b = a + [2]", "my attention.py:10", "\u2212d = 4",
    ]  # fmt: skip
    gone = replace(patch, diff="--- a\n+++ b\n@@ -7,2 +7,1 @@\n-    y = 1\n z = 2\n")
    assert re.search(r"remove\s+my attention\.py:7\s+\u2212y = 1", top_of(replace(report, patch=gone)))


def test_what_no_fault_explains_begins_with_the_first_wrong_number(wrong: Report) -> None:
    """It says what the candidate uses and should not, or the other way round."""
    right, got = np.array([[1.0, 0.0], [0.25, 0.75]]), np.array([[0.6, 0.4], [0.25, 0.75]])
    hides, nothing = right == 0, np.zeros((2, 2), bool)
    hidden = matrices(right, got, hidden=(hides, hides))
    unsure = replace(wrong, faults=[], why="no fault gives these numbers")
    for one, title, said in (
        (hidden.judged(hides), "attn_weights, head 1",
         "query 0 of head 1 gives 0.40 to key 1, which it may not attend to"),
        (replace(hidden, hidden=None), "attn_weights", "query 0 gives 0.60 to key 0, and should give 1.00"),
        (replace(hidden, expected=got, got=right, wrong=hides, hidden=(nothing, hides)), "attn_weights, head 1",
         "query 0 of head 1 doesn't attend to key 1, and should give it 0.40"),
        (replace(hidden, axes=("query", "channel"), start=3), "context, head 1, sequence 0",
         "context of head 1 of query 3, channel 0, is 0.60, and should be 1.00"),
    ):  # fmt: skip
        report = replace(unsure, matrices=[replace(one, title=title)])
        assert re.search(f'class="lead">{said}<', unescape(to_html([report])))
        assert said not in to_html([replace(report, faults=wrong.faults)])


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert number(-0.0) == "0.0000"
    assert [text_of(value, 2) for value in (-0.001, -0.0, -0.01)] == ["0.00", "0.00", "\N{MINUS SIGN}0.01"]
    assert text_of(0.0, 2, signed=True) == "+0.00"


def test_rows_have_the_digits_that_tell_them_apart_and_the_part_that_differs(report: Report) -> None:
    far = np.zeros(20)
    far[17] = 0.5
    pairs = [
        RowPair("equal", np.eye(3)[0], np.eye(3)[0]),
        RowPair("near", np.array([0.123456, 1.0]), np.array([0.123459, 1.0])),
        RowPair("far", np.zeros(20), far),
    ]
    assert [pair.title for pair in told_apart(pairs)] == ["near", "far"]
    near, behind = (row_texts(pair, 6) for pair in pairs[1:])
    assert (near.expected, near.got) == (["0.123456", "1.000000"], ["0.123459", "1.000000"])
    assert (behind.start, behind.got[3], behind.differs[3]) == (14, "0.5000", True)
    page, text = read(to_html([replace(report, rows=pairs)])), as_text(replace(report, rows=pairs))
    assert "numbers 8 to 19 of 20" in page.text
    assert "far, from number 14 on" in text
    assert "equal" not in text
    assert apart(0.12345678, 0.12345679) == ("0.12345678", "0.12345679")
    assert apart(0.5, 0.5) == ("0.5000", "0.5000")


def test_several_reports_have_an_index_and_ids_of_their_own(wrong: Report) -> None:
    right = Report(Verdict.RIGHT, CandidateWords("other"), spread="every row is right")
    page = read(to_html([wrong, right, wrong]))
    assert page.links == ["#r1", "#r2", "#r3"]
    assert page.text.startswith("2 wrong, 1 right · qkv")


@pytest.mark.parametrize("fault", [*CATALOGUE.values(), GRADIENT_FAULTS["gradient-detached"]], ids=lambda one: one.id)
def test_every_fault_can_be_drawn(fault: Any) -> None:
    named = NamedFault(fault.id, str(fault.stage), fault.title, fault.explanation, fault.repair, "", 0.0)
    matrices = figure_of(named).matrices
    if matrices is not None:
        grids = triple(matrices).grids
        assert [sum(cell.first for _, cells in grid.rows for cell in cells) for grid in grids] == [1, 1, 1]
        assert {cell.kind for _, cells in grids[2].rows for cell in cells} & {"more", "less", "plain"}


# --- code -------------------------------------------------------------------------------------------------------------


def test_code_around_the_line_is_shown_as_it_is_written(report: Report, folder: Path) -> None:
    code = [f"x{number} = '''{number}" + ("'''" if number != 9 else "") for number in range(1, 31)]
    (folder / "my attention.py").write_text("\n".join(code), encoding="utf-8")
    line = SourceLine("my attention.py", 10, "x10 = 1", until=12)
    excerpt = excerpt_of(replace(report, line=line))
    assert excerpt is not None
    assert (excerpt.start, list(excerpt.lines), excerpt.line, excerpt.other) == (4, code[3:18], 10, 12)
    # A file that has gone leaves the line that the report has.
    excerpt = excerpt_of(replace(report, line=replace(line, file="gone.py")))
    assert excerpt is not None
    assert (excerpt.start, excerpt.lines, excerpt.line) == (10, ["x10 = 1"], 10)
    assert excerpt_of(replace(report, line=None)) is None


def test_the_line_is_marked_and_the_other_end_in_another_way(report: Report, folder: Path) -> None:
    (folder / "my attention.py").write_text("\n".join(f"x{number} = 1" for number in range(1, 9)), encoding="utf-8")
    html = to_html([replace(report, line=SourceLine("my attention.py", 5, "x5 = 1", until=3))])
    assert re.findall('<li value="(.)" class="(.*?)">', html) == [("3", "other"), ("5", "marked")]
    page = read(html)
    assert "my attention.py:5, together with line 3" in page.text
    assert "x5 = 1 (this line)" in page.text


def test_code_of_a_notebook_is_that_of_its_cell(report: Report, folder: Path) -> None:
    sources = ["a = 1\nb = 2", "c = 3\nd = 4\n"]
    cells = [{"cell_type": "code", "source": one, "metadata": {}, "outputs": []} for one in sources]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}), encoding="utf-8")
    line = SourceLine("n.ipynb cell 2", 2, "d = 4")
    excerpt = excerpt_of(replace(report, line=line, candidate=CandidateWords("n", "n.ipynb")))
    assert excerpt is not None
    assert (excerpt.file, excerpt.start, list(excerpt.lines)) == ("n.ipynb cell 2", 1, ["c = 3", "d = 4"])


@pytest.mark.parametrize(
    "lines",
    [
        ["def f(x):", "    return 'a' + 1  # why"], ["", "'''", "text", "", "'''", ""], ["a\x0cb", "c\u2028d"],
        ["%matplotlib inline", "x = (", "\t1"], [],
    ],
)  # fmt: skip
def test_highlighting_changes_no_code(lines: list[str]) -> None:
    shown = ["".join(text for _, text in line) for line in highlighted(lines)]
    assert shown == [re.sub("[\x0c\u2028]", " ", line) for line in lines]


def test_a_text_of_several_lines_is_a_text_on_each() -> None:
    kinds = [{kind for kind, _ in line} for line in highlighted(["'''", "def f", "'''"])]
    assert kinds == [{"string"}] * 3


# --- matrices ---------------------------------------------------------------------------------------------------------


def matrices(expected: Any, got: Any, **more: Any) -> Matrices:
    return Matrices("attn_weights", ("query", "key"), expected, got, unlike(expected, got), **more)


def test_a_large_matrix_is_cut_around_the_first_wrong_cell_and_says_so() -> None:
    expected = np.zeros((100, 40))
    got = expected.copy()
    got[50, 39] = got[60, 3] = 0.5
    of = triple(matrices(expected, got, start=7))
    assert of.cut == "cut to query 49 to 64 of 100 and key 24 to 39 of 40, around the first wrong cell"
    grid = of.grids[1]
    assert grid.rows[0][0] == "query 49"
    assert grid.columns[-1] == "key 39"
    assert [(name, at) for name, cells in grid.rows for at, cell in enumerate(cells) if cell.first] == [
        ("query 57", 15)
    ]


def test_cells_say_what_is_hidden_and_what_differs() -> None:
    expected, got = np.array([[1.0, 0, 0], [0.5, 0.5, 0]]), np.array([[0.25, 0.75, 0], [0.5, 0.5, 0]])
    hidden = np.array([[False, True, True], [False, False, True]]), np.array([[False, False, True]] * 2)
    right, made, difference = (
        [[(cell.kind, cell.text) for cell in cells] for _, cells in grid.rows]
        for grid in triple(matrices(expected, got, hidden=hidden)).grids
    )
    assert right[0] == [("plain", "1.000"), ("hidden", ""), ("hidden", "")]
    assert made[0] == [("plain", "0.250"), ("plain", "0.750"), ("hidden", "")]
    assert difference[0] == [("less", "\u22120.750"), ("more", "+0.750"), ("hidden", "")]
    assert difference[1] == [("same", "0"), ("same", "0"), ("hidden", "")]


def test_numbers_that_are_none_and_small_differences_can_be_read() -> None:
    expected, got = np.array([[0.5, 0.5, -np.inf, 1e9]]), np.array([[np.nan, 0.50001, 2.0, 2e9]])
    grids = triple(matrices(expected, got)).grids
    assert [cell.text for cell in grids[1].rows[0][1]] == ["nan", "0.500", "2.000", "2e9"]
    small = triple(matrices(np.array([[0.5]]), np.array([[0.50001]]))).grids[2]
    assert [cell.text for cell in grids[2].rows[0][1]] == ["nan", "0", "+∞", "+1e9"]
    assert small.rows[0][1][0].text == "+1e\u22125"


def failing(case: Case, name: str) -> tuple[Observation, Variant]:
    """An ordinary probe that an attention with a fault gets wrong, and the way in which it is made."""
    variant = next(CATALOGUE[name].variants(case.spec))
    return case.observations(variant)[0], variant


def test_weights_are_drawn_from_the_run_under_the_fault_or_from_the_output() -> None:
    observation, variant = failing(CASES["encoder"], "softmax-twice")
    weights = under((variant,), observation.expected.run).weights[0, 0]
    for diagnosis in (Diagnosis(Explanation((variant,), 0.0)), Diagnosis()):
        inside, output = pictured(Inside(observation, diagnosis))
        assert (inside.title, output.title) == ("attn_weights, head 0, sequence 0", "output, sequence 0")
        assert np.allclose(inside.got, weights)
        assert inside.first == output.first == (0, 0)


def test_where_the_weights_are_right_what_comes_of_them_is_drawn() -> None:
    observation, variant = failing(CASES["encoder"], "weights-times-key")
    inside, _ = pictured(Inside(observation, Diagnosis(Explanation((variant,), 0.0))))
    assert inside.title == "context, head 0, sequence 0"
    observation, variant = failing(CASES["encoder"], "heads-merged-by-view")
    (output,) = pictured(Inside(observation, Diagnosis(Explanation((variant,), 0.0))))
    assert output.title == "output, sequence 0"
    assert output.first is not None


def test_a_report_is_drawn_of_the_failing_probe_and_of_the_smallest_input(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(FILES["wrong.py"], encoding="utf-8")
    report = judge(Request(str(file)))
    (drawn,) = report.matrices
    first = report.first_disagreement
    assert first is not None
    assert drawn.first == (first.query, first.key)
    assert [one.title for one in report.by_hand] == ["attn_weights, head 0", "output"]
    read(to_html([report]))
    assert not {"matrices", "by_hand"} & to_mapping(report).keys()


def test_rows_that_do_not_count_are_not_called_wrong() -> None:
    one = matrices(np.ones((2, 2)), np.zeros((2, 2))).judged(np.array([[False], [True]]))
    assert one.first == (1, 0)


# --- which attention is this ------------------------------------------------------------------------------------------


def test_an_identity_page_says_what_was_read_measured_and_left_open() -> None:
    identity = Identity(
        CandidateWords("kernel", "box.py", 3),
        spec=AttentionSpec(num_heads=2, head_dim=8),
        per_head=[{"head": 0, "scale": 0.25, "mask": None}, {"head": 1, "scale": 0.5, "mask": "causal"}],
        estimates={"scale": Estimate(0.25, 1e-9, "1/4")},
        readings=["arrays are BHTD"],
        undecided=["the rule of the mask"],
        documents=[0, 3],
        pictures={"head 0, 2 tokens": "#.\n##"},
        probes=[ProbeResult("7 tokens", "", True, 1e-9, 1e-5)],
        rivals=["a window of 9 keys"],
        repeat="qkv identify box.py:kernel",
    )
    page = read(identity_to_html(identity))
    for said in (
        "? read in part kernel", "2 heads of 8 channels", "scale 0.25 1.0e\u221209 1/4", "arrays are BHTD",
        "the rule of the mask", "they begin at tokens 0, 3", "head 0, 2 tokens", "query 0 attends does not",
        "a window of 9 keys", "1 of 1 fresh inputs", "qkv identify box.py:kernel", "1 0.5000 causal",
    ):  # fmt: skip
        assert "".join(said.split()) in "".join(page.text.split()), said
