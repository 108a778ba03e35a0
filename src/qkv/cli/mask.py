"""``qkv mask``: a mask as a picture, and how much of it has to be computed."""

from __future__ import annotations

import click

from qkv.cli.ending import put
from qkv.errors import SpecError

LENGTH = click.IntRange(1, 2**20)


@click.command("mask")
@click.argument("expression")
@click.option("--query-len", type=LENGTH, default=16, show_default=True, help="how many queries there are")
@click.option("--key-len", type=LENGTH, help="how many keys there are; as many as queries unless it is given")
@click.option(
    "--query-offset", default="bottom_right", show_default=True, help="bottom_right, top_left, or the first's position"
)
@click.option("--block", type=LENGTH, default=128, show_default=True, help="queries that are computed at a time")
@click.option("--ascii", "ascii_only", is_flag=True, help="draw with #, + and .")
def command(
    expression: str, query_len: int, key_len: int | None, query_offset: str, block: int, ascii_only: bool
) -> None:
    """Draw a mask: who may attend to whom.

    \b
    qkv mask "causal & window(4)" --query-len 8 --key-len 12
    """  # noqa: D301 - click wants the character itself, which a raw string has not
    from qkv.masks import parse_mask
    from qkv.masks.layout import layout, share
    from qkv.masks.places import position_of_first

    key_len = key_len or query_len
    try:
        mask = parse_mask(expression)
        first = position_of_first(position_of(query_offset), query_len, key_len)
    except SpecError as error:
        said = str(error).replace("--mask ", "qkv mask ").replace("query_offset", "--query-offset")
        raise click.UsageError(said) from None
    rows = layout(mask, query_len, key_len, query_offset=first, block=block)
    computed, full = share(rows, key_len), share([row._replace(partial=()) for row in rows], key_len)
    picture = mask.picture(query_len, key_len, query_offset=first, ascii_only=ascii_only)
    put(
        f"{picture}\n\n{mask}: queries at positions {first} to {first + query_len - 1}, keys at 0 to {key_len - 1}.\n"
        f"In blocks of {block} queries {computed:.1%} of all pairs are computed, {full:.1%} of all without a mask.\n"
    )


def position_of(given: str) -> str | int:
    """The first query's position as text, as a number if it is one."""
    try:
        return int(given)
    except ValueError:
        return given
