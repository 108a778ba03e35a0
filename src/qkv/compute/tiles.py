"""Tiles: rectangles of the score matrix that one call of a kernel computes; the rest of the matrix is never made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor


class Table:
    """Who may attend to whom in a tile, the same in each of its rectangles.

    Attributes:
        allows: booleans, ``(rows, width)``.
    """

    def __init__(self, allows: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        self.allows = allows
        self._bytes = np.packbits(allows).tobytes()
        empty = ~allows.any(axis=1)
        self.empty = empty if empty.any() else None
        """Which rows may attend to nothing in this tile; None where all may to something."""
        self._biases: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def bias(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The table as numbers to add to the scores: 0 and minus infinity, ``(rows, width)``."""
        where = dtype, device
        if where not in self._biases:
            allows = torch.from_numpy(self.allows).to(device)
            self._biases[where] = torch.zeros(allows.shape, dtype=dtype, device=device).masked_fill_(
                ~allows, -torch.inf
            )
        return self._biases[where]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.allows.shape == other.allows.shape and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash((self.allows.shape, self._bytes))


Masking = Literal["open", "causal", "asked"] | Table
"""What is hidden in a tile: nothing; keys after the query, the first of both beside each other; what the mask says when
it is asked, pair by pair; or what a table says."""


@dataclass(frozen=True)
class Tile:
    """``count`` equal rectangles of scores, at equal distances; in each, some queries beside some keys.

    Attributes:
        queries: index of the first query.
        rows: how many queries a rectangle has.
        keys: index of the first key.
        width: how many keys a rectangle has.
        masking: what is hidden in each of them.
        count: how many rectangles there are.
        query_step: queries from one rectangle to the next; 0 where all are of the same queries.
        key_step: keys from one to the next.
        sequences: the first of the sequences it is for, and the one after the last.
        first: whether no tile before it has any of its queries.
    """

    queries: int
    rows: int
    keys: int
    width: int
    masking: Masking = "open"
    count: int = 1
    query_step: int = 0
    key_step: int = 0
    sequences: tuple[int, int] = (0, 1)
    first: bool = True

    @property
    def pairs(self) -> int:
        """How many scores it makes in each head."""
        return self.rows * self.width * self.count * (self.sequences[1] - self.sequences[0])

    def holds(self, batch: int, query_len: int) -> bool:
        """Whether its one rectangle holds all the queries of all the sequences."""
        return (self.count, self.rows, self.sequences) == (1, query_len, (0, batch))

    def calls(self) -> Iterator[Tile]:
        """The tile as kernels take it: several rectangles of one sequence, or one of several sequences."""
        if self.count == 1:
            yield self
        else:
            yield from (replace(self, sequences=(one, one + 1)) for one in range(*self.sequences))

    def rectangles(self) -> Iterator[Tile]:
        """Each of its rectangles as a tile of its own."""
        for number in range(self.count):
            queries, keys = self.queries + number * self.query_step, self.keys + number * self.key_step
            yield replace(self, queries=queries, keys=keys, count=1)

    def of_queries(self, x: Tensor) -> Tensor:
        """Its part of a tensor ``(batch, head, query, ...)``: ``(batch or count, head, rows, ...)``, a view."""
        return self._cut(x, (2, self.queries, self.rows, self.query_step))

    def of_keys(self, x: Tensor) -> Tensor:
        """Its part of a tensor ``(batch, kv_head, key, ...)``: ``(batch or count, kv_head, width, ...)``, a view."""
        return self._cut(x, (2, self.keys, self.width, self.key_step))

    def of_pairs(self, x: Tensor) -> Tensor:
        """Its part of a tensor that broadcasts to ``(batch, head, query, key)``, which still does, to its scores."""
        along = (2, self.queries, self.rows, self.query_step), (3, self.keys, self.width, self.key_step)
        return self._cut(x, *(cut for cut in along if x.shape[cut[0]] > 1))

    def _cut(self, x: Tensor, *along: tuple[int, int, int, int]) -> Tensor:
        """Its rectangles of a tensor: along each of these axes, from where on, how many, and how far to the next."""
        start, stop = self.sequences
        if x.shape[0] not in (1, stop - start):
            x = x[start:stop]
        for axis, first, size, step in along:
            length = size + step * (self.count - 1)
            if length < x.shape[axis]:
                x = x.narrow(axis, first, length)
        if self.count == 1:
            return x
        shape, strides = list(x.shape), list(x.stride())
        shape[0], strides[0] = self.count, sum(step * strides[axis] for axis, _, _, step in along)
        for axis, _, size, _ in along:
            shape[axis] = size
        return x.as_strided(shape, strides, x.storage_offset())
