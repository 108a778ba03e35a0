"""``qkv shapes``: the shape of every stage, before anything runs."""

from __future__ import annotations

from typing import Any

import click

from qkv.cli.ending import put
from qkv.cli.options import given_fields, in_flags, spec_options
from qkv.errors import QkvError
from qkv.spec.field_table import LARGEST_POSITION

COUNT = click.IntRange(min=1, max=LARGEST_POSITION)


@click.command("shapes")
@spec_options
@click.option("--batch", type=COUNT, default=1, help="number of sequences")
@click.option("--query-len", type=COUNT, default=3, help="number of queries")
@click.option("--key-len", type=COUNT, default=None, help="number of keys; as many as queries by default")
def command(batch: int, query_len: int, key_len: int | None, **options: Any) -> None:
    """Predict the shape of every stage, in names and in numbers."""
    from qkv.shapes import predict_shapes, shapes_text
    from qkv.spec import spec_from_mapping

    given, _ = given_fields(options)
    try:
        spec = spec_from_mapping(given)
        if spec.head_dim is None and spec.embed_dim is None:
            spec = spec.but(head_dim=2)
        text = shapes_text(predict_shapes(spec, batch=batch, query_len=query_len, key_len=key_len))
    except QkvError as error:
        raise click.UsageError(in_flags(str(error), options["spec_file"])) from None
    put(text + "\n")
