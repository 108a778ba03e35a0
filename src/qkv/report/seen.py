"""Seen: the mask that was read off a black box, drawn, with what one of its queries sees in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from qkv.masks import Documents, Everything, Mask
from qkv.report.identity import Identity

SIDE = 16
"""Cells along a side at most."""

FEWEST, MOST = 12, 4096
"""Tokens that are drawn; in between, twice the largest number of the mask."""

RUNS = 4
"""Stretches of keys that are said of a query."""


class Seen(NamedTuple):
    """What some heads see.

    Attributes:
        name: which heads, and what a cell is.
        drawn: a line for each row of cells: ``#`` where all pairs may attend, ``+`` where some may, ``.`` where none.
        said: one query in words.
        each: queries and keys of a cell.
    """

    name: str
    drawn: str
    said: str
    each: int


def seen_of(identity: Identity) -> list[Seen]:
    """What each head may attend to, of heads that see the same once; nothing of everything, and of documents."""
    spec = identity.spec
    if spec is None or spec.masks(Documents):
        return []
    masks = [spec.mask.alone(0, head) for head in range(spec.num_heads)]
    heads: dict[str, list[int]] = {}
    for head, mask in enumerate(masks):
        heads.setdefault(str(mask), []).append(head)
    return [
        _seen(masks[of[0]], "" if len(heads) == 1 else f"heads {', '.join(map(str, of))}, ")
        for of in heads.values()
        if not isinstance(masks[of[0]], Everything)
    ]


def _seen(mask: Mask, whose: str) -> Seen:
    reach = 2 * max((int(number) for number in re.findall(r"\d+", str(mask))), default=0)
    each = max(1, -(-min(reach, MOST) // SIDE))
    length = max(FEWEST, reach) if each == 1 else SIDE * each
    sees = mask.dense(length, length)
    cells = sees.reshape(length // each, each, length // each, each)
    levels = cells.all((1, 3)).astype(int) + cells.any((1, 3))
    drawn = "\n".join("".join(".+#"[level] for level in row) for row in levels)
    scale = f", each cell {each} by {each}" if each > 1 else ""
    query = 3 * length // 4
    keys = list(_runs(sees[query]))
    said = ", ".join(keys[:RUNS]) + (", …" if len(keys) > RUNS else "") or "none"
    return Seen(f"{whose}{length} tokens{scale}", drawn, f"query {query} may attend to keys {said}", each)


def _runs(sees: Any) -> Iterator[str]:
    """The stretches of keys that a query sees."""
    for _, run in groupby(enumerate(np.flatnonzero(sees)), lambda place: int(place[1]) - place[0]):
        keys = [int(key) for _, key in run]
        yield str(keys[0]) if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"
