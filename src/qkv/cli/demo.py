"""``qkv demo``: a wrong attention being named."""

from __future__ import annotations

from pathlib import Path

import click

import qkv
from qkv.cli.check import show


@click.command("demo")
def command() -> None:
    """Judge an attention with a fault in it, and show the report."""
    from qkv.debugger import Request, judge
    from qkv.report import Verdict

    file = Path(qkv.__file__).parent / "demo" / "causal_attention.py"
    click.echo(f"{file.name}, an attention that runs, trains, and is wrong:\n")
    click.echo(file.read_text())
    click.echo("$ qkv check causal_attention.py\n")
    report = judge(Request(target=str(file), repeat="qkv check my_attention.py   # now your own"))
    show(report, "text")
    named = [fault.id for fault in report.faults]
    raise SystemExit(0 if report.verdict is Verdict.WRONG and named else 1)
