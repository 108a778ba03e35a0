"""Lowering: from a mask to the tiles that have to be computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from qkv.compute.tiles import Masking, Table, Tile
from qkv.masks import Causal, Mask, Positions, Ranges, Span
from qkv.masks.intervals import difference, runs, size, union

LONG = 768
"""From so many queries on, the kernel's own causal path is the fastest; below, it makes nearly the whole square."""
SHORT = 384
"""Below so many queries a causal square is too small for strips to pay."""
BLOCKS = (64, 128, 256)
"""Queries that are taken at a time where the mask is neither open nor plainly causal: a quarter of the keys seen."""
NEAR = 64
"""Keys that are fewer than this are computed with what stands beside them."""
LEAST = 32
"""Cuts at the seams of a mask are at least so far apart."""
MOST_NOTED = 1 << 23
"""Entries of different tables that are kept of a mask; tiles beyond are asked for theirs when they are computed."""
SCORES = 1 << 21
"""Scores of all heads that are held at a time where a kernel holds them: 8 MiB in float32."""
MOST_RECTANGLES = 64
"""Rectangles of one tile. Their gradients of keys and values are held together before they are added up."""


def lower(
    mask: Mask,
    batch: int,
    query_len: int,
    key_len: int,
    first: int,
    *,
    plainly_causal: bool = True,
    strips: bool = True,
) -> tuple[Tile, ...]:
    """The tiles that hold every pair that may attend, and few others.

    Args:
        mask: who may attend to whom.
        batch: how many sequences there are.
        query_len: how many queries there are.
        key_len: how many keys there are.
        first: position of the first query.
        plainly_causal: whether the kernel takes plainly causal tiles without a table.
        strips: whether a few queries of all heads are work enough for all threads.
    """
    if not batch or not query_len or not key_len:
        return ()
    by_sequence, by_head = mask.varies
    alike: dict[Mask, list[int]] = defaultdict(list)
    for sequence in range(batch):
        alike[mask.alone(sequence, 0) if by_sequence and not by_head else mask].append(sequence)
    tiles: list[Tile] = []
    for one, sequences in alike.items():
        cut = _Cutting(one, query_len, key_len, first, plainly_causal, strips, asked=by_head)
        folded = _in_order(_folded(cut.tiles()), query_len)
        for start, stop in runs(np.isin(range(batch), sequences), 0):
            tiles += (replace(tile, sequences=(start, stop)) for tile in folded)
    return tuple(tiles)


@dataclass
class _Cutting:
    """One sequence's scores, to be cut into tiles: queries beside keys, as indices."""

    mask: Mask
    query_len: int
    key_len: int
    first: int
    plainly_causal: bool
    strips: bool
    asked: bool
    tables: dict[Table, Table] = field(default_factory=dict)
    noted: int = 0

    def tiles(self) -> Iterator[Tile]:
        """The tiles, from the first queries on."""
        for start, stop in pairwise(self._cuts()):
            yield from self._segment(start, stop)

    def _cuts(self) -> list[int]:
        """Where queries are taken apart because the mask changes there."""
        cuts = [0]
        for seam in sorted(seam - self.first for seam in self.mask.seams()):
            if cuts[-1] + LEAST <= seam <= self.query_len - LEAST:
                cuts.append(seam)
        return [*cuts, self.query_len]

    def _segment(self, start: int, stop: int) -> Iterator[Tile]:
        span = self._span(start, stop)
        every, some = self.mask.reach(span)
        if not some:
            return
        rows = stop - start
        inner = self.mask.within(span._replace(first_key=some[0][0], last_key=some[-1][1] - 1))
        if every == some:
            yield from (Tile(start, rows, low, high - low) for low, high in some)
        elif isinstance(inner, Causal) and self.plainly_causal:
            yield from self._triangle(start, rows, some, self.first + start + inner.ahead)
        else:
            block = self._block_size(start, stop)
            for begin in range(start, stop, block):
                yield from self._block(begin, min(begin + block, stop))

    def _block_size(self, start: int, stop: int) -> int:
        middle = (start + stop) // 2
        seen = size(self.mask.reach(self._span(middle, min(middle + BLOCKS[0], stop))).some)
        return max((block for block in BLOCKS if 4 * block <= seen), default=BLOCKS[0])

    def _triangle(self, start: int, rows: int, some: Ranges, last: int) -> Iterator[Tile]:
        """Keys up to ``last`` for the first query, and one more for each further one."""
        low, high = some[0]
        if last > low:
            yield Tile(start, rows, low, min(last, high) - low)
        if last < high:
            before = max(low - last, 0)  # queries that see nothing yet
            corner = max(last, low)
            yield from self._corner(start + before, rows - before, corner, min(rows - before, high - corner))

    def _corner(self, queries: int, rows: int, keys: int, width: int) -> Iterator[Tile]:
        """A causal tile; in strips, each as wide as its last row sees, where the kernel would make nearly all of it."""
        if not (self.strips and SHORT <= rows < LONG) or width < rows:
            yield Tile(queries, rows, keys, width, "causal")
            return
        for start in range(0, rows, BLOCKS[0]):
            stop = min(start + BLOCKS[0], rows)
            masking = self._masking(queries + start, queries + stop, keys, keys + stop)
            yield Tile(queries + start, stop - start, keys, stop, masking)

    def _block(self, start: int, stop: int) -> Iterator[Tile]:
        """The tiles of some queries: one over all that any sees, or what all see apart from the rest."""
        every, some = self.mask.reach(self._span(start, stop))
        if not some:
            return
        seen_by_all = tuple((low, high) for low, high in every if high - low >= NEAR)
        rest: Ranges = ((some[0][0], some[-1][1]),)
        unsure = size(rest) - size(seen_by_all)
        if size(rest) > 2 * size(_joined(some)) or size(seen_by_all) > 4 * unsure:
            yield from (Tile(start, stop - start, low, high - low) for low, high in seen_by_all)
            rest = _joined(difference(some, seen_by_all))
        for low, high in rest:
            yield Tile(start, stop - start, low, high - low, self._masking(start, stop, low, high))

    def _masking(self, start: int, stop: int, low: int, high: int) -> Masking:
        pairs = (stop - start) * (high - low)
        if self.asked or self.noted + pairs > MOST_NOTED:
            return "asked"
        query, key = np.arange(start, stop) + self.first, np.arange(low, high)
        allows = self.mask.allows(Positions.of(query, key))
        allows = np.broadcast_to(allows[:1, :1], (1, 1, stop - start, high - low))[0, 0]
        if allows.all():
            return "open"
        table = Table(allows.copy())
        if table not in self.tables:
            self.tables[table] = table
            self.noted += pairs
        return self.tables[table]

    def _span(self, start: int, stop: int) -> Span:
        return Span(self.first + start, self.first + stop - 1, 0, self.key_len - 1)


def _joined(ranges: Ranges) -> Ranges:
    """The ranges, with what is near each other in one: a further call costs more than some keys that nobody sees."""
    return union((ranges,), gap=NEAR - 1)


def capped(tiles: Iterable[Tile], most: int) -> Iterator[Tile]:
    """The tiles in pieces of no more than so many scores in each head, down to single rows."""
    for tile in tiles:
        if tile.pairs <= most or tile.pairs == tile.width:
            yield tile
        else:
            yield from capped(_halves(tile), most)


def _halves(tile: Tile) -> Iterator[Tile]:
    if tile.count > 1:
        half = tile.count // 2
        queries, keys = tile.queries + half * tile.query_step, tile.keys + half * tile.key_step
        yield replace(tile, count=half)
        yield replace(tile, count=tile.count - half, queries=queries, keys=keys)
    elif tile.sequences[1] - tile.sequences[0] > 1:
        middle = sum(tile.sequences) // 2
        yield replace(tile, sequences=(tile.sequences[0], middle))
        yield replace(tile, sequences=(middle, tile.sequences[1]))
    else:
        masking: Masking = "open" if tile.masking == "open" else "asked"
        half = tile.rows // 2
        yield replace(tile, rows=half, masking=masking)
        yield replace(tile, queries=tile.queries + half, rows=tile.rows - half, masking=masking)


def _folded(tiles: Iterable[Tile]) -> list[Tile]:
    """Tiles that are alike and at equal distances as one."""
    alike: dict[tuple[int, int, Masking], list[Tile]] = defaultdict(list)
    for tile in tiles:
        alike[tile.rows, tile.width, tile.masking].append(tile)
    folded: list[Tile] = []
    for (_, _, masking), group in alike.items():
        if masking == "asked":
            folded += group
            continue
        run = group[0]
        for tile in group[1:]:
            steps = tile.queries - run.queries, tile.keys - run.keys
            wanted = steps if run.count == 1 else (run.count * run.query_step, run.count * run.key_step)
            if run.count < MOST_RECTANGLES and steps == wanted and steps[0] >= tile.rows and steps[1] >= 0:
                each = (run.query_step, run.key_step) if run.count > 1 else steps
                run = replace(run, count=run.count + 1, query_step=each[0], key_step=each[1])
            else:
                folded.append(run)
                run = tile
        folded.append(run)
    return folded


def _in_order(tiles: list[Tile], query_len: int) -> list[Tile]:
    """The tiles, each told whether it is the first for its queries."""
    met = np.zeros(query_len, dtype=bool)
    told = []
    for tile in tiles:
        queries = _queries_of(tile)
        told.append(replace(tile, first=not met[queries].any()))
        met[queries] = True
    return told


def _queries_of(tile: Tile) -> np.ndarray[tuple[int, ...], np.dtype[np.int_]]:
    """The indices of its queries."""
    starts = tile.queries + tile.query_step * np.arange(tile.count)
    return (starts[:, None] + np.arange(tile.rows)).ravel()
