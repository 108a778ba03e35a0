"""JUnit's XML: a case for each probe, counts that add up, and any text of a candidate's in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from qkv.report import CandidateWords, Report, Verdict
from qkv.report.junit import to_junit

COUNTS = ("tests", "failures", "errors", "skipped")


def read(*reports: Report) -> ElementTree.Element:
    """The document, whose counts are those of its cases."""
    root = ElementTree.fromstring(to_junit(reports))
    for holder in (root, *root.iter("testsuite")):
        found = [len(list(holder.iter(tag))) for tag in ("testcase", "failure", "error", "skipped")]
        assert found == [int(holder.attrib[count]) for count in COUNTS]
    return root


def outcomes(root: ElementTree.Element) -> dict[str, str]:
    return {case.attrib["name"]: next((part.tag for part in case), "passed") for case in root.iter("testcase")}


def test_a_wrong_attention(report: Report, folder: Path, snapshot: SnapshotAssertion) -> None:
    assert to_junit([report]).replace(str(folder), "/repository/models") == snapshot


def test_a_probe_that_disagrees_fails_and_says_where(report: Report) -> None:
    root = read(report)
    assert outcomes(root) == {
        "ordinary": "failure",
        "size": "failure",
        "one-token": "passed",
        "chunked": "skipped",
        "verdict": "failure",
    }
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == "largest error 5.0e-01, allowed 1.0e-05"
    assert failure.attrib["type"] == "scale-missing mask-late"
    assert "models/my attention.py:7: scores = query @ (" in (failure.text or "")
    assert "first wrong: token 2 of sequence 0, output channel 3" in (failure.text or "")
    assert "expected 0.2500, got -1.5000" in (root.findtext(".//system-out") or "")


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict.RIGHT, "passed"),
        (Verdict.WRONG, "failure"),
        (Verdict.UNDECIDED, "error"),
        (Verdict.FAILED, "error"),
    ],
)
def test_the_verdict_is_a_case_of_its_own(report: Report, verdict: Verdict, outcome: str) -> None:
    root = read(replace(report, verdict=verdict, probes=[], faults=[], why="because"))
    assert outcomes(root) == {"verdict": outcome}


def test_several_candidates_are_suites_of_one_document(report: Report) -> None:
    failed = Report(Verdict.FAILED, CandidateWords("", "gone.py"), why="no such file")
    root = read(report, failed)
    assert [suite.attrib["name"] for suite in root] == ["my attention.py:attention", "gone.py"]


EVIL = "]]> <b> & \"x\" 'y' 100% a,b:c \x1b[31m \x00 \x0b \ud800 \ufffe ü 😀\nnext"


def test_what_xml_forbids_is_replaced(folder: Path) -> None:
    text = to_junit([Report(Verdict.FAILED, CandidateWords(EVIL, EVIL), why=EVIL, detail=EVIL, printed=EVIL)])
    assert text.isascii()
    (error,) = ElementTree.fromstring(text).iter("error")
    assert "]]> <b> & \"x\" 'y' 100% a,b:c \ufffd[31m \ufffd \ufffd \ufffd \ufffd ü 😀\nnext" in (error.text or "")
