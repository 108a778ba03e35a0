"""Annotations: what a report says about a line of code, for the forms that editors and CI read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Literal

from qkv.adapters.targets import same_file
from qkv.report.document import NamedFault, Report, Verdict
from qkv.report.places import disagreement

_FRAME = re.compile(r'^File "(.+)", line (\d+)', re.MULTILINE)
"""How Python writes a frame of a traceback."""


@dataclass(frozen=True)
class Rule:
    """What an annotation is an instance of: a fault of the catalogue, or one of the answers that name none.

    Attributes:
        id: the fault's, or ``unexplained``, ``undecided``, ``could-not-be-run``, ``right``.
        title: what is wrong, in a few words.
        explanation: what that means, for whoever meets it first.
        repair: what to write instead, as code; may be empty.
    """

    id: str
    title: str
    explanation: str
    repair: str = ""


Level = Literal["error", "warning", "notice"]

VERDICTS: dict[Verdict, tuple[Level, Rule]] = {
    Verdict.RIGHT: (
        "notice",
        Rule("right", "the attention is right", "Its numbers are those of the attention that it is held to."),
    ),
    Verdict.WRONG: (
        "error",
        Rule("unexplained", "wrong, by no known fault", "Its numbers are not those of the attention it is held to."),
    ),
    Verdict.UNDECIDED: (
        "warning",
        Rule("undecided", "neither right nor wrong for sure", "More has to be said before this can be judged."),
    ),
    Verdict.FAILED: (
        "error",
        Rule("could-not-be-run", "the attention could not be run", "What can't run can be neither right nor wrong."),
    ),
}
"""How bad each verdict is, and the rule that stands for it where no fault is named."""


@dataclass(frozen=True)
class Annotation:
    """One thing to say, and the lines that it is about.

    Attributes:
        rule: what it is an instance of.
        level: how bad it is.
        summary: what is wrong and where, in lines.
        advice: what it means and what to do, in lines.
        file: the file, as the report names it; empty for an object.
        line: first line that it is about, from 1; 0 where none is known.
        end_line: the last one.
        code: these lines, where it is known that they make the numbers; else empty.
    """

    rule: Rule
    level: Level
    summary: str
    advice: str
    file: str
    line: int
    end_line: int
    code: str

    @property
    def text(self) -> str:
        """All that there is to say, in lines."""
        return f"{self.summary}\n{self.advice}".rstrip()


def annotations_of(report: Report) -> Iterator[Annotation]:
    """One annotation for each fault of a wrong attention; of any other, the one that says its verdict."""
    level, verdict = VERDICTS[report.verdict]
    found = [(_rule(fault), fault.note) for fault in report.faults] if report.verdict is Verdict.WRONG else []
    for rule, note in found or [(verdict, "")]:
        yield Annotation(rule, level, _summary(report, rule, note), _advice(report, rule), *_lines(report))


def root() -> Path:
    """The folder that paths are told from: the repository's that this is in, or else the working directory."""
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if (one / ".git").exists()), here)


def path_in(folder: Path, file: str) -> str:
    """A file's path from a folder, with ``/`` between names; its whole path where it stands outside."""
    path = Path(file).expanduser().resolve()
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _lines(report: Report) -> tuple[str, int, int, str]:
    """The lines to point at: those that make the wrong numbers, where it failed, or where its definition begins."""
    if report.line is None:
        line = failed_at(report) or report.candidate.line
        return report.candidate.file, line, line, ""
    code = report.line.code.rstrip()
    return report.line.file, report.line.line, report.line.line + code.count("\n"), code


def failed_at(report: Report) -> int:
    """The innermost line of the candidate's file that the traceback or the reason speaks of; 0 for none."""
    file = Path(report.candidate.file)
    said = re.findall(rf"\b{re.escape(file.name)}:(\d+)", report.why) if file.name else []
    said += [line for name, line in _FRAME.findall(report.detail) if same_file(name, file)]
    return int(said[-1]) if said and report.verdict is Verdict.FAILED else 0


def _rule(fault: NamedFault) -> Rule:
    return Rule(fault.id, fault.title, fault.explanation, dedent(fault.repair).strip())


def _summary(report: Report, rule: Rule, note: str) -> str:
    line = report.line
    return _joined(
        f"{report.candidate.name}: {rule.title}" if report.candidate.name else rule.title,
        note,
        report.why,
        f"{path_in(root(), line.file)}:{line.line}: {line.code.strip()}" if line is not None else "",
        line.note if line is not None else "",
        disagreement(report),
        report.spread if report.verdict is not Verdict.RIGHT else "",
        f"only when {report.only_when}" if report.only_when else "",
    )


def _advice(report: Report, rule: Rule) -> str:
    others = ", ".join(fault.id for fault in report.alternatives)
    return _joined(
        rule.explanation if rule.repair else "",
        _repair(report, rule),
        f"the same numbers would come of: {others}" if others else "",
        report.detail.rstrip(),
        f"try: {report.hint}" if report.hint else "",
        f"held to: {report.held_to}" if report.held_to else "",
    )


def _repair(report: Report, rule: Rule) -> str:
    """The change of the user's own lines; where none is known, what is written instead as a rule."""
    if report.patch is not None:
        words = "it was changed" if report.patch.applied else "it is right with this change"
        return f"{words}:\n{report.patch.diff.rstrip()}"
    return f"write instead:\n{rule.repair}" if rule.repair else ""


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
