"""SARIF: valid by the schema of the standard, and the same finding has the same fingerprint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Log
from syrupy.assertion import SnapshotAssertion

from qkv.report import CandidateWords, Report, SourceLine, Verdict
from qkv.report.sarif import to_sarif

EVIL = ']]> "quoted" \\ \x1b[31m\x00 \ud800 \ufffe \u2028 ü 😀 100%\r\n'


def run_of(*reports: Report, exit_code: int = 1) -> dict[str, Any]:
    """The one run of the log, which is valid."""
    text = to_sarif(reports, exit_code)
    text.encode("utf-8")
    Log.model_validate_json(text)
    (run,) = json.loads(text)["runs"]
    return run


def test_the_schema_is_strict() -> None:
    with pytest.raises(ValueError, match="extra"):
        Log.model_validate({"version": "2.1.0", "runs": [], "more": 1})


def test_a_wrong_attention(report: Report, folder: Path, snapshot: SnapshotAssertion) -> None:
    text = to_sarif([report], 1).replace(folder.parent.as_uri(), "file:///repository")
    log = json.loads(text)
    driver = log["runs"][0]["tool"]["driver"]
    assert driver.pop("version") == driver.pop("semanticVersion")
    assert log == snapshot


def test_a_result_is_placed_relative_to_the_repository(report: Report, folder: Path) -> None:
    run = run_of(report)
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "models/my%20attention.py", "uriBaseId": "%SRCROOT%"}
    assert (place["region"]["startLine"], place["region"]["endLine"]) == (7, 8)
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == folder.parent.as_uri() + "/"
    rules = run["tool"]["driver"]["rules"]
    assert [rules[one["ruleIndex"]]["id"] for one in (first, second)] == ["scale-missing", "mask-late"]
    assert [one["level"] for one in (first, second)] == ["error", "error"]


def test_several_candidates_are_one_run(report: Report) -> None:
    right = replace(report, verdict=Verdict.RIGHT, faults=[])
    undecided = replace(report, verdict=Verdict.UNDECIDED, why="two readings")
    failed = Report(Verdict.FAILED, CandidateWords("", "gone.py"), why="no such file")
    run = run_of(right, undecided, failed, report, exit_code=1)
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("undecided", "warning"),
        ("could-not-be-run", "error"),
        ("scale-missing", "error"),
        ("mask-late", "error"),
    ]
    (invocation,) = run["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (1, False)
    assert run_of(right, exit_code=0)["results"] == []


def test_a_fingerprint_is_of_what_was_found_and_not_of_the_line_number(report: Report) -> None:
    def prints(one: Report) -> list[str]:
        return [found["partialFingerprints"]["ruleCandidateCode/v1"] for found in run_of(one)["results"]]

    assert report.line is not None
    first, second = prints(report)
    assert first != second
    assert prints(replace(report, line=replace(report.line, line=70))) == [first, second]
    assert first not in prints(replace(report, line=replace(report.line, code="other")))
    assert first not in prints(replace(report, candidate=replace(report.candidate, name="other")))


def test_whatever_a_candidate_says_is_valid(folder: Path) -> None:
    words = CandidateWords(EVIL, "ü %.py", 3)
    run = run_of(Report(Verdict.FAILED, words, why=EVIL, detail=EVIL, hint=EVIL, line=SourceLine("/x y.py", 1, EVIL)))
    assert "ü 😀 100%" in run["results"][0]["message"]["text"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "file:///x%20y.py"}


def test_an_object_has_a_name_and_no_file() -> None:
    (result,) = run_of(Report(Verdict.FAILED, CandidateWords("attention"), why="it raised"))["results"]
    assert result["locations"] == [{"logicalLocations": [{"name": "attention"}]}]
