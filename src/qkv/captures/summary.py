"""Summary: what is shown and what its heads look at, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from qkv.captures.black_box import SAME, dense
from qkv.captures.patterns import EVEN, FEW, NAMED_EVEN, Scores, oddities
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import HeadWeights
from qkv.report.page import page
from qkv.report.plain import harmless

MOST_HEADS = 3
"""Heads that are named for a pattern."""

LEAST = 0.25
"""Share of its attention below which a head isn't named for a pattern; how even it has to be is `NAMED_EVEN`."""


def summary(view: AttentionView, scores: Sequence[Scores], console: Console) -> str:
    """The view in a few lines: its size, how it was come by, and the heads that look most at each kind of place."""
    headline = Text.assemble((view.title, "bold"), "  ", (_size(view), "dim"))
    sections: list[tuple[str, RenderableType]] = []
    compared = [head for head in view.heads if head.against is not None]
    found = [] if compared else list(_strongest(scores, several=len(view.layers) > 1))
    if compared:
        sections.append(("beside", Text(_beside(view, compared))))
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


def _beside(view: AttentionView, heads: Sequence[HeadWeights]) -> str:
    """How heads differ from those that they should equal, in words."""
    counterparts = {
        f"{layer}.{head}": one for layer, row in enumerate(view.layers) for head, one in enumerate(row.heads)
    }
    own, right = (dense(some) for some in (heads, [counterparts[str(one.against)] for one in heads]))
    off = np.abs(own - right).max(axis=(1, 2))
    wrong = np.flatnonzero(off > SAME)
    if not len(wrong):
        return "the weights are those that they should be"
    first = int(wrong[0])
    query, key = np.argwhere(np.abs(own[first] - right[first]) > SAME)[0]
    many = (
        f"all {len(heads)} heads differ" if len(wrong) == len(heads) else f"{len(wrong)} of {len(heads)} heads differ"
    )
    given, wanted = own[first, query, key], right[first, query, key]
    return (
        f"{many} from what they should be; the first difference is in {heads[first].name}: "
        f"query {query} gives key {key} {given:.4f}, and should give it {wanted:.4f}"
    )


def _strongest(scores: Sequence[Scores], *, several: bool) -> Iterator[tuple[str, str]]:
    """Of each pattern the heads that follow it most, in words."""
    for pattern in dict.fromkeys(name for one in scores for name in one.shares):
        least = NAMED_EVEN if pattern == EVEN else LEAST
        ranked = sorted((one for one in scores if one.queries >= FEW and one.shares.get(pattern, 0.0) >= least),
                        key=lambda one: -one.shares[pattern])  # fmt: skip
        if ranked:
            named = [f"{one.layer + ' ' if several else ''}{one.head} ({one.shares[pattern]:.2f})" for one in ranked]
            more = f", and {len(named) - MOST_HEADS} more" if len(named) > MOST_HEADS else ""
            yield pattern, harmless(", ".join(named[:MOST_HEADS]) + more)
