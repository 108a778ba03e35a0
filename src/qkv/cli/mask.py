"""``qkv mask``: a mask as a picture, and how much of it has to be computed."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qkv.cli.ending import put
from qkv.errors import QkvError, SpecError

if TYPE_CHECKING:
    from qkv.masks import Mask

FIGURES = (".svg", ".pdf", ".png")
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
@click.option(
    "--figure", type=click.Path(dir_okay=False, path_type=Path), help="write a figure too: mask.svg, mask.pdf, mask.png"
)
def command(
    expression: str,
    query_len: int,
    key_len: int | None,
    query_offset: str,
    block: int,
    ascii_only: bool,
    figure: Path | None,
) -> None:
    """Draw a mask: who may attend to whom.

    \b
    qkv mask "causal & window(4)" --query-len 8 --key-len 12
    """  # noqa: D301 - click wants the character itself, which a raw string has not
    from qkv.masks import parse_mask
    from qkv.masks.places import position_of_first
    from qkv.report.plain import encodable

    key_len = key_len or query_len
    try:
        mask = parse_mask(expression)
        first = position_of_first(position_of(query_offset), query_len, key_len)
    except SpecError as error:
        said = str(error).replace("--mask ", "qkv mask ").replace("query_offset", "--query-offset")
        raise click.UsageError(said) from None
    if figure is not None:
        _write_figure(figure, mask, (query_len, key_len), first)
    picture = mask.picture(query_len, key_len, query_offset=first, ascii_only=ascii_only)
    text = (
        f"{picture}\n\n{mask}: queries at positions {first} to {first + query_len - 1}, keys at 0 to {key_len - 1}.\n"
        f"{_work(mask, (query_len, key_len), first, block)}"
    )
    put(encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8"))


MOST_COUNTED = 2**16
"""Queries up to which the pairs that a mask allows are counted; it takes a second or two."""


def _work(mask: Mask, lengths: tuple[int, int], first: int, block: int) -> str:
    """How much the mask allows and how much is computed, in a line; empty where one block holds all queries."""
    from qkv.masks.layout import layout, share

    if lengths[0] <= block:
        return ""
    computed = share(layout(mask, *lengths, query_offset=first, block=block), lengths[1])
    work = f"in blocks of {block} queries it takes {100 * computed:.3g}% of the work of full attention.\n"
    if lengths[0] > MOST_COUNTED:
        return f"Computed {work}"
    allowed = share(layout(mask, *lengths, query_offset=first, block=1), lengths[1])
    return f"The mask allows {100 * allowed:.3g}% of all pairs; computed {work}"


def position_of(given: str) -> str | int:
    """The first query's position as text, as a number if it is one."""
    try:
        return int(given)
    except ValueError:
        return given


def _write_figure(file: Path, mask: Mask, lengths: tuple[int, int], first: int) -> None:
    """Nothing; writes the mask's figure.

    Raises:
        click.UsageError: its ending tells no form, it can't be written, or the mask can't be drawn.
    """
    from qkv.pictures.figure import draw

    if file.suffix not in FIGURES:
        raise click.UsageError(f"--figure is {str(file)!r}, and must end in one of {', '.join(FIGURES)}")
    made = BytesIO()
    try:
        drawn = draw(mask, lengths=lengths, query_offset=first, title=str(mask))
        drawn.savefig(made, format=file.suffix[1:])
        file.write_bytes(made.getvalue())
    except QkvError as error:
        raise click.UsageError(f"--figure: {error}") from None
    except OSError as error:
        raise click.UsageError(f"--figure {file} can't be written: {error.strerror or error}") from None
