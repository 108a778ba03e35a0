"""``qkv spec``: a spec as one sentence, or as JSON."""

from __future__ import annotations

import json
from typing import Any

import click

from qkv.cli.ending import put
from qkv.cli.options import given_fields, spec_options


@click.command("spec")
@spec_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="a sentence, or JSON")
def command(form: str, **options: Any) -> None:
    """Read a spec from a file, a Hugging Face config or flags, and say what it means."""
    from qkv.spec import describe, spec_from_mapping, spec_to_mapping

    given, _ = given_fields(options)
    spec = spec_from_mapping(given)
    put((describe(spec) if form == "text" else json.dumps(spec_to_mapping(spec), indent=2)) + "\n")
