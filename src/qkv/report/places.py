"""The first disagreement in the words that every form of the report has."""

from __future__ import annotations

from qkv.report.digits import apart
from qkv.report.document import Disagreement, Report
from qkv.report.matrices import WORDS

FEW = 2
"""Decimals of a number in a sentence, if they tell it from the right one."""

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


def first_inside(report: Report) -> str:
    """The first wrong number inside: ``query 5 of head 2 gives 0.40 to key 0, and should give 0.12``; or empty."""
    of = report.matrices[0] if report.matrices else None
    if of is None or of.first is None:
        return ""
    expected, got = apart(float(of.expected[of.first]), float(of.got[of.first]), FEW)
    what, *where = of.title.split(", ")
    row, column = f"{of.axes[0]} {of.start + of.first[0]}", f"{of.axes[1]} {of.first[1]}"
    head = "".join(f" of {one}" for one in where if one.startswith("head"))
    if what != WORDS["weights"]:
        return f"{what}{head} of {row}, {column}, is {got}, and should be {expected}"
    may_not, does_not = (False, False) if of.hidden is None else (bool(one[of.first]) for one in of.hidden)
    if may_not and of.got[of.first] != 0:
        return f"{row}{head} gives {got} to {column}, which it may not attend to"
    if does_not and of.got[of.first] == 0:
        return f"{row}{head} doesn't attend to {column}, and should give it {expected}"
    return f"{row}{head} gives {got} to {column}, and should give {expected}"


def disagreement(report: Report) -> str:
    """The place with both numbers: ``first wrong: ...: expected 0.1681, got -1.1720``; empty where nothing is wrong."""
    first = report.first_disagreement
    if first is None:
        return ""
    numbers = apart(first.expected, first.got)
    said = (f"{side} {number}" for side, number in zip(report.sides, numbers, strict=True))
    return f"{place_of(report)}: {', '.join(said)}"
