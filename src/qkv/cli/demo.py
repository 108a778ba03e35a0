"""``qkv demo``: a wrong attention being named."""

from __future__ import annotations

from pathlib import Path

import click

import qkv
from qkv.cli.ending import FAILED, put
from qkv.cli.forms import text_of
from qkv.cli.pages import html_option, write_page


@click.command("demo")
@html_option
def command(html: Path | None) -> None:
    """Judge an attention with a fault in it, and show the report."""
    from qkv.debugger import judge
    from qkv.report import Verdict
    from qkv.request import Request

    file = Path(qkv.__file__).parent / "demo" / "causal_attention.py"
    put(f"{file.name}, an attention that runs, trains, and is wrong:\n\n{file.read_text(encoding='utf-8')}\n")
    put("$ qkv check causal_attention.py\n\n")
    report = judge(Request(target=str(file), repeat="qkv check my_attention.py   # now your own"))
    put(text_of(report, "text"))
    if html is not None:
        from qkv.report.html import to_html

        write_page(html, to_html([report]), "text")
    raise SystemExit(0 if report.verdict is Verdict.WRONG and report.faults else FAILED)
