"""Summary: what is shown and what its heads look at, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from qkv.captures.patterns import EVEN, FEW, NAMED, NAMED_EVEN, Scores, oddities
from qkv.pictures.panels import Pictured
from qkv.pictures.subjects import first_seen
from qkv.pictures.view import AttentionView
from qkv.report.page import INDENT, page
from qkv.report.plain import harmless
from qkv.report.terminal import drawn

MOST_HEADS = 3
"""Heads that are named for a pattern."""

MOST_PAIRS = 2**20
"""Pairs of a query and a key up to which the head that the page begins with is drawn in the terminal too."""


def summary(view: AttentionView, scores: Sequence[Scores], console: Console) -> str:
    """The view in a few lines: its size, how it was come by, and the heads that look most at each kind of place."""
    headline = Text.assemble((view.title, "bold"), "  ", (_size(view), "dim"))
    sections: list[tuple[str, RenderableType]] = []
    compared = any(head.against is not None for head in view.heads)
    found = [] if compared else list(_strongest(scores, several=len(view.layers) > 1))
    if compared and view.focus is not None:
        sections.append(("beside", Text(view.focus.said)))
    if prod(view.shape) <= MOST_PAIRS:
        seen = first_seen(view)
        seen = Pictured(harmless(seen.title), harmless(list(seen.panels)))
        sections.append(("weights", drawn(seen, console, console.width - INDENT)))
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
    # Right ones that stand beside others are no more of them.
    right = {int(head.against.partition(".")[0]) for head in view.heads if head.against is not None}
    own = [layer for place, layer in enumerate(view.layers) if place not in right]
    heads = sorted({len(layer.heads) for layer in own})
    several = "1 head" if heads == [1] else f"{' or '.join(map(str, heads))} heads"
    queries, keys = view.shape
    return ", ".join([_counted(len(own), "layer", "layers"), several + (" and what they should be" if right else ""),
                      _counted(queries, "query", "queries"), _counted(keys, "key", "keys")])  # fmt: skip


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


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
