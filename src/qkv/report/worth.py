"""Worth: what the probes were, and what they would have shown, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qkv.report.document import ProbeResult, Report

SAME_NUMBERS = "gives the same numbers under this spec"
"""Why no probe shows a fault that this attention could have: the one reason that is no absence of a feature."""


@dataclass(frozen=True)
class Worth:
    """What a check is worth.

    Attributes:
        counted: how many probes agree.
        refused: the probes that could not be given.
        shown: how many of the faults it could have would have been seen; empty where that was not asked.
        missed: faults that it could have and no probe shows.
        absent: other faults, by what they would need.
    """

    counted: str
    refused: Sequence[ProbeResult]
    shown: str
    missed: Sequence[str]
    absent: Mapping[str, Sequence[str]]


def worth_of(report: Report) -> Worth:
    """What the report's check is worth."""
    agreed = sum(probe.agrees is True for probe in report.probes)
    refused = [probe for probe in report.probes if probe.agrees is None]
    counted = f"{agreed} of {len(report.probes) - len(refused)} probes agree"
    strength = report.strength
    if strength is None:
        return Worth(counted, refused, "", (), {})
    reasons: dict[str, list[str]] = {}
    for entry in strength.blind_to:
        fault, _, reason = entry.partition(": ")
        reasons.setdefault(reason, []).append(fault)
    missed = reasons.pop(SAME_NUMBERS, [])
    could = strength.of - sum(map(len, reasons.values()))
    shown = f"these probes would have shown {strength.would_catch} of the {could} known faults it could have"
    return Worth(counted, refused, shown, missed, reasons)
