"""``qkv shapes``: the shape of every stage, before anything runs."""

from __future__ import annotations

from typing import Any

import click

from qkv.cli.options import given_fields, spec_options
from qkv.errors import QkvError


@click.command("shapes")
@spec_options
@click.option("--batch", type=click.IntRange(min=1), default=1, help="number of sequences")
@click.option("--query-len", type=click.IntRange(min=1), default=3, help="number of queries")
@click.option(
    "--key-len", type=click.IntRange(min=1), default=None, help="number of keys; as many as queries by default"
)
def command(batch: int, query_len: int, key_len: int | None, **options: Any) -> None:
    """Predict the shape of every stage, in names and in numbers."""
    from qkv.shapes import predict_shapes, shapes_text
    from qkv.spec import spec_from_mapping

    given, _ = given_fields(options)
    try:
        spec = spec_from_mapping(given)
        if spec.head_dim is None and spec.embed_dim is None:
            spec = spec.but(head_dim=2)
        click.echo(shapes_text(predict_shapes(spec, batch=batch, query_len=query_len, key_len=key_len)))
    except QkvError as error:
        raise click.UsageError(str(error)) from None
