"""The reports as JUnit's XML, which CI reads as tests: a suite for each candidate, a case for each probe."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from qkv.report.annotations import Annotation, annotations_of
from qkv.report.document import ProbeResult, Report, Verdict
from qkv.report.plain import storable
from qkv.report.terminal import as_text

VERDICT = "verdict"
"""The case that says the verdict, which may be wrong though each probe by itself agrees."""


def to_junit(reports: Sequence[Report]) -> str:
    """The reports as one document. A case fails where the attention is wrong; what could not be judged is an error."""
    suites = Element("testsuites", name="qkv")
    for report in reports:
        suites.append(_suite(report))
    for count in ("tests", "failures", "errors", "skipped"):
        suites.set(count, str(sum(int(suite.get(count, 0)) for suite in suites)))
    indent(suites)
    # Characters as numbers, so that it is the same bytes in any encoding that stdout may have.
    text = storable(tostring(suites, encoding="unicode")).encode("ascii", "xmlcharrefreplace").decode("ascii")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(report: Report) -> Element:
    words = report.candidate
    name = f"{words.file}:{words.name}" if words.file and words.name else words.file or words.name
    said = list(annotations_of(report))
    suite = Element("testsuite", name=name)
    for probe in report.probes:
        _add_probe(SubElement(suite, "testcase", classname=name, name=probe.name), probe, said)
    _add_verdict(SubElement(suite, "testcase", classname=name, name=VERDICT), report, said)
    SubElement(suite, "system-out").text = as_text(report)
    counts = {"tests": "testcase", "failures": "*/failure", "errors": "*/error", "skipped": "*/skipped"}
    for count, path in counts.items():
        suite.set(count, str(len(suite.findall(path))))
    return suite


def _add_probe(case: Element, probe: ProbeResult, said: Sequence[Annotation]) -> None:
    if probe.agrees is None:
        SubElement(case, "skipped", message=probe.note)
    elif not probe.agrees:
        size = "" if probe.max_error is None else f"largest error {probe.max_error:.1e}, allowed {probe.tolerance:.1e}"
        failure = SubElement(case, "failure", message=size or probe.note or "other numbers", type=_types(said))
        failure.text = "\n\n".join(one.summary for one in said)


def _add_verdict(case: Element, report: Report, said: Sequence[Annotation]) -> None:
    if report.verdict is not Verdict.RIGHT:
        kind = "failure" if report.verdict is Verdict.WRONG else "error"
        message = said[0].summary.partition("\n")[0]
        SubElement(case, kind, message=message, type=_types(said)).text = "\n\n".join(one.text for one in said)


def _types(said: Sequence[Annotation]) -> str:
    return " ".join(one.rule.id for one in said)
