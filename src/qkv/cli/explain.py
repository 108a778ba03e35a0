"""``qkv explain``: somebody's code with, beside each line, what it makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qkv.cli.candidate import candidate_options, encodable_json, request_of
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.cli.pages import html_option, write_page
from qkv.errors import SpecError

if TYPE_CHECKING:
    from qkv.report.anatomy import Anatomy


@click.command("explain")
@click.argument("target", metavar="FILE.py[:NAME] | NOTEBOOK.ipynb[:NAME]", required=False)
@spec_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="form of the answer")
@html_option
@candidate_options
def command(target: str | None, form: str, verbose: bool, html: Path | None, **options: Any) -> None:
    """Show the code with what each line makes: the stage, the shape by axes, the matrix product, right or wrong.

    A plain script or a notebook is run as it stands, and the attention found in its variables.

    Exit code: 0 right, 1 wrong, 2 bad usage, 3 undecided, 4 could not be run.
    """
    if target is None or not target.strip():
        raise click.UsageError("which file? qkv explain my_script.py, or qkv explain my_attention.py:Attention")
    from qkv.cli.ending import put
    from qkv.cli.fixing import SHOWN_SECONDS
    from qkv.explainer import explain

    given, whole = given_fields(options)
    request = request_of("explain", target, given, options, whole_spec=whole, patch_seconds=SHOWN_SECONDS)
    try:
        anatomy = explain(request)
    except SpecError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
    put(_text(anatomy, form, verbose))
    if html is not None:
        from qkv.report.html import anatomy_to_html

        write_page(html, anatomy_to_html(anatomy), form)
    raise SystemExit(anatomy.report.exit_code)


def _text(anatomy: Anatomy, form: str, verbose: bool) -> str:
    if form == "json":
        from qkv.report.anatomy import anatomy_to_json

        return encodable_json(anatomy_to_json(anatomy))
    from qkv.report.anatomy_text import anatomy_text
    from qkv.report.terminal import terminal

    return anatomy_text(anatomy, terminal(), verbose=verbose)
