"""The reports as one SARIF 2.1.0 log, which code scanning and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from qkv.report.annotations import Annotation, Rule, annotations_of, path_in, root
from qkv.report.document import Report, Verdict
from qkv.report.plain import harmless, storable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
"""What code scanning takes paths to start from."""

Json = dict[str, Any]


def to_sarif(reports: Sequence[Report], exit_code: int) -> str:
    """The reports as one log with one run: a result for each fault, and none for what is right.

    Args:
        reports: what was found out, a candidate each.
        exit_code: what the command exits with.
    """
    found = [(one, report) for report in map(harmless, reports) for one in annotations_of(report)]
    found = [(one, report) for one, report in found if report.verdict is not Verdict.RIGHT]
    rules = {one.rule.id: one.rule for one, _ in found}
    order = list(rules)
    run = {
        "tool": {"driver": _driver(rules.values())},
        "invocations": [_invocation(reports, exit_code)],
        "originalUriBaseIds": {BASE: {"uri": f"{root().as_uri()}/"}},
        "results": [_result(one, report, order.index(one.rule.id)) for one, report in found],
    }
    return storable(json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False))


def _driver(rules: Iterable[Rule]) -> Json:
    version = metadata.version("qkv")
    return {"name": "qkv", "version": version, "semanticVersion": version, "rules": [_rule(rule) for rule in rules]}


def _rule(rule: Rule) -> Json:
    text = markdown = rule.explanation
    if rule.repair:
        text += f"\n\nwrite instead:\n{rule.repair}"
        markdown += f"\n\nwrite instead:\n\n```python\n{rule.repair}\n```"
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": text, "markdown": markdown},
    }


def _invocation(reports: Sequence[Report], exit_code: int) -> Json:
    command = {"commandLine": reports[0].repeat} if reports[0].repeat else {}
    return command | {
        "executionSuccessful": all(report.verdict is not Verdict.FAILED for report in reports),
        "exitCode": exit_code,
        "workingDirectory": {"uri": f"{Path.cwd().as_uri()}/"},
    }


def _result(annotation: Annotation, report: Report, index: int) -> Json:
    path = path_in(root(), annotation.file) if annotation.file else ""
    place = {"physicalLocation": _physical(annotation, path)} if path else {}
    name = {"logicalLocations": [{"name": report.candidate.name}]} if report.candidate.name else {}
    # Not its number: a line that moves stays the same finding.
    identity = "\n".join((annotation.rule.id, path, report.candidate.name, annotation.code.strip()))
    return {
        "ruleId": annotation.rule.id,
        "ruleIndex": index,
        "level": annotation.level,
        "message": {"text": annotation.text},
        "locations": [place | name],
        "partialFingerprints": {"ruleCandidateCode/v1": sha256(identity.encode("utf-8", "replace")).hexdigest()},
    }


def _physical(annotation: Annotation, path: str) -> Json:
    inside = not Path(path).is_absolute()
    place: Json = {"uri": quote(path), "uriBaseId": BASE} if inside else {"uri": Path(path).as_uri()}
    if not annotation.line:
        return {"artifactLocation": place}
    region: Json = {"startLine": annotation.line, "endLine": annotation.end_line}
    if annotation.code:
        region["snippet"] = {"text": annotation.code}
    return {"artifactLocation": place, "region": region}
