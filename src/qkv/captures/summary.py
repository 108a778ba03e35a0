"""Summary: what is shown and what its heads look at, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from qkv.captures.patterns import EVEN, FEW, NAMED, NAMED_EVEN, Scores, oddities
from qkv.pictures.view import AttentionView
from qkv.report.page import page
from qkv.report.plain import harmless

MOST_HEADS = 3
"""Heads that are named for a pattern."""


def summary(view: AttentionView, scores: Sequence[Scores], console: Console) -> str:
    """The view in a few lines: its size, how it was come by, and the heads that look most at each kind of place."""
    headline = Text.assemble((view.title, "bold"), "  ", (_size(view), "dim"))
    sections: list[tuple[str, RenderableType]] = []
    compared = any(head.against is not None for head in view.heads)
    found = [] if compared else list(_strongest(scores, several=len(view.layers) > 1))
    if compared and view.focus is not None:
        sections.append(("beside", Text(view.focus.said)))
    if found:
        grid = Table.grid(padding=(0, 2))
        for pattern, heads in found:
            grid.add_row(pattern, Text(heads))
        sections.append(("looks at", grid))
    odd = oddities(scores)
    if odd:
        sections.append(("odd", Text("\n".join(odd), style="yellow")))
    if view.notes:
        sections.append(("notes", Text("\n".join(harmless(list(view.notes))), style="dim")))
    return page(headline, sections, "", console)


def _size(view: AttentionView) -> str:
    heads = {len(layer.heads) for layer in view.layers}
    layers = "1 layer" if len(view.layers) == 1 else f"{len(view.layers)} layers"
    each = " or ".join(map(str, sorted(heads)))
    queries, keys = view.shape
    return f"{layers}, {each} heads, {queries:,} queries, {keys:,} keys".replace(" 1 heads", " 1 head")


def _strongest(scores: Sequence[Scores], *, several: bool) -> Iterator[tuple[str, str]]:
    """Of each pattern the heads that follow it most, in words."""
    for pattern in dict.fromkeys(name for one in scores for name in one.shares):
        least = NAMED_EVEN if pattern == EVEN else NAMED
        ranked = sorted((one for one in scores if one.queries >= FEW and one.shares.get(pattern, 0.0) >= least),
                        key=lambda one: -one.shares[pattern])  # fmt: skip
        if ranked:
            named = [f"{one.layer + ' ' if several else ''}{one.head} ({one.shares[pattern]:.2f})" for one in ranked]
            more = f", and {len(named) - MOST_HEADS} more" if len(named) > MOST_HEADS else ""
            yield pattern, harmless(", ".join(named[:MOST_HEADS]) + more)
