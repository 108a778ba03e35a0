"""Judges a file as a user would, in a process where the tests' checks of types and shapes are not in place."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.adapters.host import Host
from qkv.debugger import judge
from qkv.request import Request


@dataclass(frozen=True)
class Judgement:
    """What a test needs of a report.

    Attributes:
        verdict: right, wrong, undecided or failed.
        faults: ids of the faults named.
        cache: what is said of the candidate's cache.
        why: the reason, where there is no verdict or no fault.
    """

    verdict: str
    faults: list[str]
    cache: str
    why: str


def judged(target: str) -> Judgement:
    """The judgement on a file or a name in it."""
    report = judge(Request(target), Host())
    cache = next((line for line in report.assumptions if line.startswith("its cache")), "")
    faults = [fault.id for fault in report.faults]
    return Judgement(report.verdict.value, faults, cache, f"{report.why} {report.detail}".strip())
