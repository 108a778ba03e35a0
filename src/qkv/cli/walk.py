"""``qkv walk``: the article as a page, on the reader's own input."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from qkv.cli.ending import put
from qkv.cli.pages import PageFile, write_page
from qkv.errors import SpecError

MOST_HEADS = 4


@click.command("walk")
@click.argument("given", metavar="[SENTENCE | ROWS | FILE.csv | FILE.npy]", nargs=-1)
@click.option("--dim", type=click.IntRange(1, 4), help="numbers for each word of a sentence; 3 unless given")
@click.option("--heads", "num_heads", type=click.IntRange(1, MOST_HEADS), default=2, show_default=True)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="draws all that is random"
)
@click.option(
    "--output", type=PageFile(), default="walk.html", show_default=True, metavar="FILE.html", help="where the page goes"
)
@click.option("--open", "open_it", is_flag=True, help="open the page in the browser")
def command(given: tuple[str, ...], dim: int | None, num_heads: int, seed: int, output: Path, open_it: bool) -> None:
    """Write a page that walks through attention, from one dot product to several heads, with a question at each step.

    \b
    qkv walk                                three tokens of two numbers, to check by hand
    qkv walk "your own sentence"
    qkv walk "1 0; 0 1; 1 2"
    """  # noqa: D301 - click wants the character itself, which a raw string has not
    from qkv.lesson.numbers import Lesson
    from qkv.lesson.steps import STEPS
    from qkv.lesson.tokens import default_tokens, tokens_of
    from qkv.lesson.walk_page import walk_page

    if not given and dim is not None:
        raise click.UsageError('--dim is for a sentence: qkv walk "your own sentence" --dim 2')
    try:
        tokens = tokens_of(" ".join(given), dim=dim, seed=seed) if given else default_tokens()
    except SpecError as error:
        raise click.UsageError(str(error)) from None
    page = walk_page(Lesson(tokens, num_heads, seed))
    put(f"{len(STEPS)} steps on {len(tokens.words)} tokens of {tokens.inputs.shape[1]} numbers.\n")
    write_page(output, page, "text")
    if not open_it:
        put("Open it in a browser; --open does.\n")
    elif not webbrowser.open(output.resolve().as_uri()):
        put("No browser could be opened.\n")
