"""``qkv check``: judge an attention."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from qkv.cli.options import given_fields, json_option, spec_options
from qkv.errors import SpecError
from qkv.vocabulary import Layout, MaskMeaning

if TYPE_CHECKING:
    from qkv.debugger import Request

LAYOUTS = (*get_args(Layout), "BTE", "TBE", "TE")


@click.command("check")
@click.argument("target", metavar="FILE.py[:NAME]", required=False)
@spec_options
@click.option("--layout", type=click.Choice(LAYOUTS), help="order of the candidate's axes")
@click.option(
    "--mask-argument", type=click.Choice(get_args(MaskMeaning)), help="what the entries of its mask argument mean"
)
@click.option("--init", metavar="JSON", help="arguments of its constructor")
@click.option("--call", metavar="JSON", help="values for arguments of its call that qkv doesn't know")
@click.option("--weights", metavar="PROJ=NAME", multiple=True, help="where a projection's weight is: q_proj=W_q.weight")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="form of the report")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="seed of every random number")
@click.option("--time-limit", type=click.FloatRange(min=0.1), default=20.0, help="seconds that one call may take")
@click.option("--memory-limit", default="4G", help="memory that the candidate may take, for instance 500M or 4G")
@click.option("--verbose", "-v", is_flag=True, help="every probe, and every fault that could not be shown")
def command(target: str | None, form: str, verbose: bool, **options: Any) -> None:
    """Judge the attention in a file: right, or wrong and why.

    Exit code: 0 right, 1 wrong, 2 bad usage, 3 undecided, 4 could not be run.
    """
    if target is None:
        raise click.UsageError("which file? qkv check my_attention.py, or qkv demo to see one judged")
    from qkv.debugger import judge

    try:
        report = judge(request_from(target, options))
    except SpecError as error:
        raise click.UsageError(str(error)) from None
    show(report, form, verbose)
    raise SystemExit(report.exit_code)


def request_from(target: str, options: Mapping[str, Any]) -> Request:
    """What the options ask for.

    Raises:
        click.UsageError: one of them can't be read.
    """
    from qkv.debugger import Request

    given, whole = given_fields(options)
    return Request(
        target=target,
        given=given,
        whole_spec=whole,
        conventions=_conventions(options),
        seed=options["seed"],
        time_limit=options["time_limit"],
        memory_limit=bytes_in(options["memory_limit"]),
        repeat=shlex.join(["qkv", *sys.argv[1:]]) if sys.argv[1:2] == ["check"] else "",
    )


def _conventions(options: Mapping[str, Any]) -> Any:
    from qkv.adapters.opening import Conventions

    return Conventions(
        layout=options["layout"],
        mask_meaning=options["mask_argument"],
        init=json_option(options["init"], "--init"),
        weights=_names(options["weights"]),
        call=json_option(options["call"], "--call"),
        seed=options["seed"],
    )


def show(report: Any, form: str, verbose: bool = False) -> None:
    """Prints a report in the form asked for."""
    if form == "json":
        from qkv.report import to_json

        click.echo(to_json(report))
        return
    from rich.console import Console

    from qkv.report.terminal import print_report

    print_report(report, Console(highlight=False), verbose=verbose)


def _names(pairs: tuple[str, ...]) -> dict[str, str]:
    named = {}
    for pair in pairs:
        projection, equals, name = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(
                f"--weights is {pair!r}; write PROJECTION=NAME, as in --weights q_proj=W_query.weight"
            )
        named[projection] = name
    return named


def bytes_in(text: str) -> int:
    """The number of bytes that ``500M`` or ``4G`` stands for.

    Raises:
        click.UsageError: it stands for none.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if not match:
        raise click.UsageError(f"--memory-limit is {text!r}; write a number of bytes, or one with a unit: 500M, 4G")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
