"""The forms of a report: for a person, for programs, for CI. Each is written out by a module of `qkv.report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from qkv.cli.candidate import encodable_json

if TYPE_CHECKING:
    from qkv.report import Report

FORMS = ("text", "json", "github", "sarif", "junit")
DOCUMENTS = ("sarif", "junit")
"""Forms that are one whole file, however many reports it holds."""

form_option = click.option("--format", "form", type=click.Choice(FORMS), default="text", help="form of the report")


def text_of(report: Report, form: str, verbose: bool = False, *, alone: bool = True) -> str:
    """The report in the form asked for, as stdout can take it; empty for a form that is one document of them all.

    Args:
        report: what to write.
        form: one of `FORMS`.
        verbose: whether a person wants to read all of it.
        alone: whether it is the only one. Of several JSON objects each has a line of its own.
    """
    if form == "json":
        from qkv.report import to_json

        return encodable_json(to_json(report, indent=2 if alone else None))
    if form == "github":
        from qkv.report.github import to_github

        return to_github(report)
    if form in DOCUMENTS:
        return ""
    from qkv.report.terminal import report_text, terminal

    return report_text(report, terminal(), verbose=verbose)


def document_of(reports: Sequence[Report], form: str) -> str:
    """All reports in one document; empty for a form that has one text after another."""
    if form == "sarif":
        from qkv.report.sarif import to_sarif

        return encodable_json(to_sarif(reports, exit_code_of(reports)))
    if form == "junit":
        from qkv.report.junit import to_junit

        return to_junit(reports)
    return ""


def exit_code_of(reports: Sequence[Report]) -> int:
    """The exit code of the worst: of one that is wrong, else of one that could not be run, else of an undecided one."""
    from qkv.report import WORST_FIRST

    return min((report.verdict for report in reports), key=WORST_FIRST.index).exit_code
