"""The first disagreement in the words that every form of the report has."""

from __future__ import annotations

from qkv.report.digits import apart
from qkv.report.document import Disagreement, Report

TWO_DUMPS = "two dumps"
"""The kind of what is judged where two dumps are held against each other."""

GRADIENTS_OF = {"dq": "query", "dk": "key", "dv": "value"}

OF_TOKENS = ("dx", "dsource", "dvalue_source")
"""Gradients whose rows are tokens, and no rows of a matrix, though they have no heads."""


def place_of(report: Report) -> str:
    """Where the first wrong entry stands: ``first wrong: token 1 of sequence 0, output channel 2``; or empty."""
    first = report.first_disagreement
    if first is None:
        return ""
    if report.candidate.kind == TWO_DUMPS:
        entry = f"sequence {first.batch}, head {first.head}, row {first.query}, entry {first.channel}"
        return f"{first.probe} differ first at {entry}"
    token = f"token {first.query} of sequence {first.batch}"
    if first.tensor == "output":
        return f"first wrong: {token}, output channel {first.channel}"
    return f"gradient of {_source_of(first)}, channel {first.channel}"


def _source_of(first: Disagreement) -> str:
    """Of what a gradient is wrong, and the row of it."""
    token = f"token {first.query} of sequence {first.batch}"
    if first.head is not None:
        token = f"{token}, head {first.head}"
    elif first.tensor not in OF_TOKENS:
        token = f"row {first.query}"
    name = GRADIENTS_OF.get(first.tensor, first.tensor[1:])
    return f"{name} is wrong first at {token}"


def disagreement(report: Report) -> str:
    """The place with both numbers: ``first wrong: ...: expected 0.1681, got -1.1720``; empty where nothing is wrong."""
    first = report.first_disagreement
    if first is None:
        return ""
    numbers = apart(first.expected, first.got)
    said = (f"{side} {number}" for side, number in zip(report.sides, numbers, strict=True))
    return f"{place_of(report)}: {', '.join(said)}"
