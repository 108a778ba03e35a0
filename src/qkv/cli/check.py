"""``qkv check``: judge an attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import click

from qkv.cli.candidate import candidate_options, request_of
from qkv.cli.ending import own_failure, put
from qkv.cli.forms import DOCUMENTS, document_of, exit_code_of, form_option, text_of
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.cli.pages import html_option, write_page
from qkv.errors import SpecError
from qkv.vocabulary import DType

if TYPE_CHECKING:
    from qkv.adapters.messages import Hosting
    from qkv.report import Report
    from qkv.request import Request


LONGEST = 1 << 20
"""Tokens: beyond a million a single head's scores take days."""


@click.command("check")
@click.argument("targets", metavar="FILE.py[:NAME]... | DUMP [DUMP]", nargs=-1)
@spec_options
@form_option
@html_option
@candidate_options
@click.option("--sweep", is_flag=True, help="many more sizes than usual, for functions of query, key and value")
@click.option(
    "--length", type=click.IntRange(min=2, max=LONGEST), help="tokens of one long sequence to judge too: 8192"
)
@click.option("--dtype", type=click.Choice(get_args(DType)), help="the precision to run the candidate in")
@click.option("--gradients", is_flag=True, help="judge the backward pass too, where the output is right (torch only)")
@click.option("--fix", is_flag=True, help="write the repair into the file, where one is found with which it is right")
@click.option("--watch", is_flag=True, help="judge the file again each time that it, or a file it imports, is saved")
def command(targets: tuple[str, ...], form: str, verbose: bool, watch: bool, html: Path | None, **options: Any) -> None:
    """Judge the attention in a file, or in each of several: right, or wrong and why.

    A dump is a file of tensors that another program wrote (.safetensors, .npz, .pt, or a folder of .npy files): query,
    key, value and output. Two dumps of one layer are compared with each other.

    Exit code: 0 right, 1 wrong, 2 bad usage, 3 undecided, 4 could not be run; of several files that of the worst.
    """
    if not targets or not all(target.strip() for target in targets):
        raise click.UsageError("which file? qkv check my_attention.py, or qkv demo to see one judged")
    if watch and options["fix"]:
        raise click.UsageError("--watch judges what you save, and --fix would save it too. Leave one of them out")
    if watch:
        _watch(targets, form, verbose, html, options)
    reports: list[Report] = []
    jobs = _jobs(targets, options)
    for request, other in jobs:
        try:
            reports.append(_judged(request, other, fix=options["fix"]))
            text = text_of(reports[-1], form, verbose, alone=len(jobs) == 1)
        except SpecError as error:
            raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
        except Exception as error:
            if form != "text":
                reports.append(_failed(request, error))
                put(text_of(reports[-1], form, alone=len(jobs) == 1) or document_of(reports, form))
            raise
        put("\n" * (form == "text" and len(reports) > 1) + text)
    put(document_of(reports, form))
    if html is not None:
        _write_page(html, reports, form)
    raise SystemExit(exit_code_of(reports))


def _write_page(file: Path, reports: Sequence[Report], form: str) -> None:
    from qkv.report.html import to_html

    write_page(file, to_html(reports), form)


def _jobs(targets: Sequence[str], options: Mapping[str, Any]) -> list[tuple[Request, str | None]]:
    """What to judge one after another, each with what to hold it against where that is another dump.

    Raises:
        click.UsageError: the targets can't be judged together, or an option can't be read.
    """
    from qkv.adapters.dump import is_dump

    dumps = [target for target in targets if is_dump(target)]
    if len(targets) == 2 and dumps:
        return [(request_from(targets[0], options), targets[1])]
    if len(targets) > 1 and dumps:
        raise click.UsageError(f"{len(targets)} targets, {dumps[0]} among them; dumps are judged alone or by twos")
    return [(request_from(target, options), None) for target in targets]


def _judged(request: Request, other: str | None = None, host: Hosting | None = None, *, fix: bool = False) -> Report:
    """The report on one candidate or one pair of dumps, with a bar of progress where that takes long.

    Raises:
        SpecError: what is asked can't be asked of it.
    """
    from qkv.adapters.dump import is_dump
    from qkv.cli.fixing import FIXED_SECONDS, SHOWN_SECONDS, fixed
    from qkv.debugger import judge, judge_pair

    if fix and is_dump(request.target):
        raise SpecError(f"--fix mends code, and {request.target} is a dump")
    if other is not None:
        return judge_pair(request, other)
    request = replace(request, patch_seconds=FIXED_SECONDS if fix else SHOWN_SECONDS)
    if request.length is None and not fix:
        return judge(request, host)
    from qkv.cli.progress import progress_bar

    with progress_bar(f"every row of {request.length:,} tokens" if request.length else "repair") as advance:
        report = judge(replace(request, advance=advance), host)
    return fixed(report, request, judge) if fix else report


def _watch(targets: Sequence[str], form: str, verbose: bool, html: Path | None, options: Mapping[str, Any]) -> NoReturn:
    """Nothing; judges one file again and again, until it is stopped.

    Raises:
        click.UsageError: more than one file is to be watched, or in a form that would not end.
    """
    from qkv.cli.watching import keep_judging

    if len(targets) > 1:
        raise click.UsageError(f"--watch takes one file, and {len(targets)} are given. Start one qkv for each")
    if form in DOCUMENTS:
        raise click.UsageError(f"--watch gives one report after another, and {form} is one document. Use --format json")
    request = request_from(targets[0], options)

    def report(host: Hosting) -> Report:
        try:
            return _judged(request, host=host)
        except SpecError as error:
            raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
        except Exception as error:  # noqa: BLE001 - the next save may be judged all the same
            return _failed(request, error)

    def show(one: Report) -> None:
        # Not put(): once the reader has gone there is nobody left to judge for.
        click.echo(text_of(one, form, verbose, alone=False), nl=False)
        if html is not None:
            _write_page(html, [one], form)

    keep_judging(request, report, show, quiet=form != "text")


def request_from(target: str, options: Mapping[str, Any]) -> Request:
    """What the options ask for.

    Raises:
        click.UsageError: one of them can't be read.
    """
    given, whole = given_fields(options)
    return request_of(
        "check",
        target,
        given,
        options,
        whole_spec=whole,
        sweep=options["sweep"],
        gradients=options["gradients"],
        length=options["length"],
        dtype=options["dtype"],
    )


def _failed(request: Request, error: Exception) -> Report:
    """The report that says that qkv itself has failed."""
    from qkv.report import CandidateWords, Report, Verdict

    file, _, name = str(request.target).rpartition(":") if ".py:" in str(request.target) else (request.target, "", "")
    why, hint = own_failure(error), "please report it, with the file that was judged"
    return Report(Verdict.FAILED, CandidateWords(name, file), why=why, hint=hint, repeat=request.repeat)
