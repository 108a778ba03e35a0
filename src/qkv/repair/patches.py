"""The repair of a candidate, as a patch of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qkv.errors import CandidateError
from qkv.repair.search import Suspicion, changes, repaired
from qkv.repair.source import Source
from qkv.repair.trying import Bench
from qkv.report import Patch, Report
from qkv.spec import AttentionSpec


def patch_for(
    report: Report,
    bench: Bench,
    is_right: Callable[[bytes], bool],
    seconds: float,
    advance: Callable[[float], None] = lambda share: None,
) -> Patch | None:
    """The patch of a wrong candidate's file with which it is right; None where none was found in time.

    Args:
        report: what is known of it.
        bench: tries edited files on a few inputs; quick.
        is_right: whether an edited file is found right by the same check; asked only of what passes there.
        seconds: how long to look.
        advance: is told the share of that time that has passed since it was told last.
    """
    file = report.candidate.file
    try:
        source = Source.of(file, _numbers(report.spec))
    except (OSError, SyntaxError, ValueError, CandidateError):
        return None
    at = report.line
    line = at.line if at is not None and Path(at.file).resolve() == Path(file).resolve() else None
    suspicion = Suspicion(report.candidate.name, [fault.id for fault in report.faults], line)
    passes = source.told(lambda whole: bench.passes(whole) and is_right(whole))
    edited = repaired(source.code, changes(source.code, suspicion), passes, seconds, advance)
    return None if edited is None else source.patch(edited, mends(report))


def mends(report: Report) -> str:
    """What was wrong, in words."""
    return "; ".join(f"{fault.id}: {fault.title}" for fault in report.faults) or report.why


def _numbers(spec: AttentionSpec | None) -> list[float]:
    """The numbers that a file may have to have in it."""
    if spec is None:
        return []
    numbers = (spec.rope.base if spec.rope else None, spec.softcap, spec.scale)
    return [float(number) for number in numbers if number is not None]
