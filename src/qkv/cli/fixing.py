"""``--fix``: the repair that a report has, judged once more and written into the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from qkv.report import Report
    from qkv.request import Request

SHOWN_SECONDS = 2.0
"""How long a repair is looked for that is only shown."""

FIXED_SECONDS = 10.0
"""How long one is looked for that is asked for."""


def fixed(report: Report, request: Request, judge: Callable[[Request], Report]) -> Report:
    """The report on the file with the repair in it; the report as it is, where there is none or it can't be written.

    Args:
        report: what was found of the file, with a repair perhaps.
        request: what was asked.
        judge: judges the repaired text once more, from the start, in a process of its own.
    """
    from qkv.adapters.targets import absolute
    from qkv.errors import CandidateError
    from qkv.repair import write
    from qkv.report import Verdict

    patch = report.patch
    if patch is None and report.verdict is not Verdict.WRONG:
        return report
    if patch is None:
        _say(f"no small edit was found with which {report.candidate.file or 'it'} is right, so nothing was changed")
        return report
    again = judge(replace(request, instead={absolute(patch.path): patch.edited}, patch_seconds=0.0))
    if again.verdict is not Verdict.RIGHT:
        _say(f"{patch.path} was left as it is: with the edit it is {again.verdict.value} in a new process")
        return replace(report, patch=None)
    try:
        write(patch)
    except CandidateError as error:
        _say(f"{error.message}. {error.hint}".rstrip(". "))
        return report
    return replace(again, patch=replace(patch, applied=True))


def _say(sentence: str) -> None:
    click.echo(f"qkv: {sentence}", err=True)
