"""``qkv identify``: which attention does a black box compute?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from qkv.cli.candidate import candidate_options, encodable_json, request_of
from qkv.cli.pages import html_option, write_page
from qkv.errors import SpecError
from qkv.spec.field_table import LARGEST_SIZE

SIZE = click.IntRange(min=1, max=LARGEST_SIZE)


@click.command("identify")
@click.argument("target", metavar="FILE.py:NAME | DUMP", required=False)
@click.option("--heads", "num_heads", type=SIZE, help="query heads")
@click.option("--kv-heads", "num_kv_heads", type=SIZE, help="key/value heads")
@click.option("--head-dim", type=SIZE, help="channels of one head's query and key")
@click.option("--value-dim", type=SIZE, help="channels of one head's value")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="form of the answer")
@html_option
@candidate_options
def command(target: str | None, form: str, verbose: bool, html: Path | None, **options: Any) -> None:
    """Read from outside which attention a function or a dump computes: scale, mask, positions and all.

    The spec in the JSON form is one that qkv check --spec takes.

    Exit code: 0 read, 2 bad usage, 3 read in part, 4 not read.
    """
    if target is None or not target.strip():
        raise click.UsageError("which attention? qkv identify kernel.py:attention, or qkv identify dump.safetensors")
    from qkv.cli.ending import put
    from qkv.cli.progress import progress_bar
    from qkv.identifier import name_it

    sizes = ("num_heads", "num_kv_heads", "head_dim", "value_dim")
    request = request_of(
        "identify", target, {name: options[name] for name in sizes if options[name] is not None}, options
    )
    try:
        with progress_bar("questions") as advance:
            identity = name_it(replace(request, advance=advance))
    except SpecError as error:
        raise click.UsageError(str(error)) from None
    put(_text(identity, form, verbose))
    if html is not None:
        from qkv.report.html import identity_to_html

        write_page(html, identity_to_html(identity), form)
    raise SystemExit(identity.exit_code)


def _text(identity: Any, form: str, verbose: bool) -> str:
    from qkv.report.identity_form import identity_text, identity_to_json
    from qkv.report.terminal import terminal

    if form == "json":
        return encodable_json(identity_to_json(identity))
    return identity_text(identity, terminal(), verbose=verbose)
