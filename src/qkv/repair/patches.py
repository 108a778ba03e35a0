"""A repair as a patch: the lines that change, and a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qkv.repair.code import Code
from qkv.repair.search import Suspicion, repaired
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
        bench: tries edited files.
        is_right: whether an edited file is found right by the same check.
        seconds: how long to look.
        advance: is told the share of that time that has passed since it was told last.
    """
    file = report.candidate.file
    try:
        code = Code(Path(file).read_bytes(), _numbers(report.spec))
    except (OSError, SyntaxError, ValueError):
        return None
    at = report.line
    line = at.line if at is not None and Path(at.file).resolve() == Path(file).resolve() else None
    suspicion = Suspicion(report.candidate.name, [fault.id for fault in report.faults], line)
    source = repaired(code, suspicion, bench.passes, is_right, seconds, advance)
    mends = "; ".join(f"{fault.id}: {fault.title}" for fault in report.faults)
    return None if source is None else replace(patch_between(file, code.data, source), mends=mends)


def _numbers(spec: AttentionSpec | None) -> list[float]:
    """The numbers that a file may have to have in it."""
    if spec is None:
        return []
    numbers = (spec.rope.base if spec.rope else None, spec.softcap, spec.scale)
    return [float(number) for number in numbers if number is not None]


def patch_between(file: str, before: bytes, after: bytes) -> Patch:
    """The patch that makes one text of a file of another."""
    old, new = (data.decode("utf-8", "surrogateescape").splitlines(keepends=True) for data in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    _, start, end, to_start, to_end = next(block for block in blocks if block[0] != "equal")
    return Patch(
        file=file,
        line=start + 1,
        before="".join(old[start:end]).rstrip("\r\n"),
        after="".join(new[to_start:to_end]).rstrip("\r\n"),
        diff="".join(difflib.unified_diff(old, new, file, file)),
        original=before,
        edited=after,
    )
