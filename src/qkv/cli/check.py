"""``qkv check``: judge an attention."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import click

from qkv.cli.candidate import candidate_options, conventions_from, encodable_json, tensors_from
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.errors import SpecError
from qkv.vocabulary import DType

if TYPE_CHECKING:
    from qkv.report import Report
    from qkv.request import Request


LONGEST = 1 << 20
"""Tokens: beyond a million a single head's scores take days."""


@click.command("check")
@click.argument("target", metavar="FILE.py[:NAME] | DUMP", required=False)
@click.argument("other", metavar="[DUMP]", required=False)
@spec_options
@candidate_options
@click.option("--sweep", is_flag=True, help="many more sizes than usual, for functions of query, key and value")
@click.option(
    "--length", type=click.IntRange(min=2, max=LONGEST), help="tokens of one long sequence to judge too: 8192"
)
@click.option("--dtype", type=click.Choice(get_args(DType)), help="the precision to run the candidate in")
@click.option("--gradients", is_flag=True, help="judge the backward pass too, where the output is right (torch only)")
def command(target: str | None, other: str | None, form: str, verbose: bool, **options: Any) -> None:
    """Judge the attention in a file: right, or wrong and why.

    A dump is a file of tensors that another program wrote (.safetensors, .npz, .pt, or a folder of .npy files): query,
    key, value and output. Two dumps of one layer are compared with each other.

    Exit code: 0 right, 1 wrong, 2 bad usage, 3 undecided, 4 could not be run.
    """
    if target is None or not target.strip():
        raise click.UsageError("which file? qkv check my_attention.py, or qkv demo to see one judged")
    from qkv.cli.ending import put
    from qkv.debugger import judge_pair

    request = request_from(target, options)
    try:
        report = _judged(request) if other is None else judge_pair(request, other)
        text = text_of(report, form, verbose)
    except SpecError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
    except Exception as error:
        if form == "json":
            put(text_of(_failed(request, error), form))
        raise
    put(text)
    raise SystemExit(report.exit_code)


def _judged(request: Request) -> Report:
    """The report on one candidate, with a bar of progress where that takes long."""
    from qkv.debugger import judge

    if request.length is None:
        return judge(request)
    from qkv.cli.progress import progress_bar

    with progress_bar(f"every row of {request.length:,} tokens") as advance:
        return judge(replace(request, advance=advance))


def request_from(target: str, options: Mapping[str, Any]) -> Request:
    """What the options ask for.

    Raises:
        click.UsageError: one of them can't be read.
    """
    from qkv.request import Request

    given, whole = given_fields(options)
    return Request(
        target=target,
        given=given,
        whole_spec=whole,
        conventions=conventions_from(options),
        seed=options["seed"],
        time_limit=options["time_limit"],
        memory_limit=options["memory_limit"],
        sweep=options["sweep"],
        repeat=shlex.join(["qkv", *sys.argv[1:]]) if sys.argv[1:2] == ["check"] else "",
        tensors=tensors_from(options["tensors"]),
        gradients=options["gradients"],
        length=options["length"],
        dtype=options["dtype"],
    )


def text_of(report: Report, form: str, verbose: bool = False) -> str:
    """The report in the form asked for, as stdout can take it."""
    if form == "json":
        from qkv.report import to_json

        return encodable_json(to_json(report))
    from qkv.report.terminal import report_text, terminal

    return report_text(report, terminal(), verbose=verbose)


def _failed(request: Request, error: Exception) -> Report:
    """The report that says that qkv itself has failed."""
    from qkv.cli.ending import own_failure
    from qkv.report import CandidateWords, Report, Verdict

    file, _, name = str(request.target).rpartition(":") if ".py:" in str(request.target) else (request.target, "", "")
    why, hint = own_failure(error), "please report it, with the file that was judged"
    return Report(Verdict.FAILED, CandidateWords(name, file), why=why, hint=hint, repeat=request.repeat)
