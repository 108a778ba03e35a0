"""The repair of a candidate, as a patch of its file or of one that it imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from qkv.adapters.targets import absolute, same_file
from qkv.adapters.tracebacks import is_own
from qkv.errors import CandidateError
from qkv.repair.search import Suspicion, changes, repaired
from qkv.repair.source import Source
from qkv.repair.trying import Bench
from qkv.report import Patch, Report
from qkv.spec import AttentionSpec


def patch_for(
    report: Report,
    bench: Bench,
    is_right: Callable[[Mapping[str, bytes]], bool],
    seconds: float,
    advance: Callable[[float], None] = lambda share: None,
) -> Patch | None:
    """The patch of a wrong candidate's files with which it is right; None where none was found in time.

    Args:
        report: what is known of it.
        bench: tries edited files on a few inputs; quick.
        is_right: whether it is found right by the same check with texts in place of what files hold, by their absolute
            paths; asked only of what passes there.
        seconds: how long to look.
        advance: is told the share of that time that has passed since it was told last.
    """
    files = list(_files(report))
    for file in files:
        try:
            source = Source.of(file, _numbers(report.spec))
        except (OSError, SyntaxError, ValueError, CandidateError):
            continue
        path, likely = absolute(file), changes(source.code, _suspicion(report, source))

        def passes(whole: bytes, path: str = path) -> bool:
            return bench.passes({path: whole}) and is_right({path: whole})

        def passed(share: float) -> None:
            advance(share / len(files))

        edited = repaired(source.code, likely, source.told(passes), seconds / len(files), passed)
        if edited is not None:
            return source.patch(edited, mends(report))
    return None


def _files(report: Report) -> Iterator[str]:
    """The files that an edit may mend: that with the blamed line, where it is the user's own, and the candidate's."""
    at, own = report.line, report.candidate.file
    if at is not None and not same_file(at.file, own) and is_own(absolute(at.file)):
        yield at.file
    yield own


def _suspicion(report: Report, source: Source) -> Suspicion:
    """What is known of what is wrong in a file; of one that the candidate imports, where the blamed line stands."""
    at, faults = report.line, [fault.id for fault in report.faults]
    line = at.line if at is not None and same_file(at.file, source.file) else None
    if line is None or same_file(source.file, report.candidate.file):
        return Suspicion(report.candidate.name, faults, line)
    around = [one for one in source.code.tree.body if one.lineno <= line <= (one.end_lineno or one.lineno)]
    return Suspicion(next((str(getattr(one, "name", "")) for one in around), ""), faults, line)


def mends(report: Report) -> str:
    """What was wrong, in words."""
    return "; ".join(f"{fault.id}: {fault.title}" for fault in report.faults) or report.why


def _numbers(spec: AttentionSpec | None) -> list[float]:
    """The numbers that a file may have to have in it."""
    if spec is None:
        return []
    numbers = (spec.rope.base if spec.rope else None, spec.softcap, spec.scale)
    return [float(number) for number in numbers if number is not None]
