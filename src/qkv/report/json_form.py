"""The report as one JSON object. Its field names are a promise; ``schema`` counts the promises."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Any

from qkv.report.digits import MOST_WRITTEN
from qkv.report.document import Example, NamedFault, Patch, Report
from qkv.spec import describe, spec_to_mapping

SCHEMA = 1


def to_json(report: Report, indent: int | None = 2) -> str:
    """The report as JSON. Numbers that JSON lacks are written as the strings ``nan``, ``inf`` and ``-inf``.

    Args:
        report: what to write.
        indent: spaces before what is inside; None for all of it in one line.
    """
    return json.dumps(plain(to_mapping(report)), indent=indent, ensure_ascii=False)


def to_mapping(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists."""
    spec = report.spec
    return {
        "schema": SCHEMA,
        "verdict": report.verdict.value,
        "candidate": asdict(report.candidate),
        "spec": None if spec is None else {**spec_to_mapping(spec), "sentence": describe(spec)},
        "held_to": report.held_to,
        "assumptions": list(report.assumptions),
        "why": report.why,
        "hint": report.hint,
        "detail": report.detail,
        "first_disagreement": None if report.first_disagreement is None else asdict(report.first_disagreement),
        "rows": [asdict(row) for row in report.rows],
        "sides": list(report.sides),
        "spread": report.spread,
        "wrong": [list(head) for head in report.wrong],
        "only_when": report.only_when,
        "stage": report.faults[0].stage if report.faults else None,
        "faults": [_fault(fault) for fault in report.faults],
        "alternatives": [_short(fault) for fault in report.alternatives],
        "line": None if report.line is None else asdict(report.line),
        "line_why": report.line_why,
        "patch": None if report.patch is None else _patch(report.patch),
        "example": None if report.example is None else _example(report.example),
        "strength": None if report.strength is None else asdict(report.strength),
        "probes": [asdict(probe) for probe in report.probes],
        "repeat": report.repeat,
        "printed": report.printed,
    }


def _example(example: Example) -> dict[str, Any]:
    arrays, left_out = example.arrays(MOST_WRITTEN)
    named = dict(arrays)
    outputs = {side: named.pop(side, None) for side in ("expected", "got")}
    return {"words": example.words, "held_to": example.held_to, "tensors": list(named.items()), **outputs,
            "left_out": left_out}  # fmt: skip


def _patch(patch: Patch) -> dict[str, Any]:
    return {one.name: getattr(patch, one.name) for one in fields(patch) if one.repr}


def _fault(fault: NamedFault) -> dict[str, Any]:
    return {name: value for name, value in asdict(fault).items() if name != "own"}


def _short(fault: NamedFault) -> dict[str, Any]:
    return {"id": fault.id, "stage": fault.stage, "title": fault.title, "note": fault.note, "error": fault.error}


def plain(value: Any) -> Any:
    """The value with arrays as lists, and numbers that JSON lacks as strings."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
