"""Routing: which query head and which key/value head each output head reads, and where the value's channels go.

Nothing here looks at numbers: only at what changes when something is changed, and at what values are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qkv.errors import CandidateError
from qkv.identification.box import Box, Floats, Sizes

TRIES = 8
"""Runs that are joined where the box drops weights at random."""


@dataclass(frozen=True)
class Routing:
    """Where what an output row is made of comes from.

    Attributes:
        kv_head: the key/value head that each output head mixes the values of; -1 for none or several.
        query_head: the query head that changes each output head; -1 for none or several.
        rows: whether output row ``i`` follows query ``i``, and no other.
        mixes: whether some row draws from several tokens.
        leaks: whether a sequence changes when another one does.
        channels: for each head the value channel that each output channel holds; None where channels are mixed.
        random: whether two runs on one input differ.
    """

    kv_head: tuple[int, ...]
    query_head: tuple[int, ...]
    rows: bool
    mixes: bool
    leaks: bool
    channels: tuple[tuple[int, ...], ...] | None
    random: bool

    @property
    def is_attention(self) -> bool:
        """Whether every head mixes the tokens of one key/value head, and each row follows its own query."""
        return self.is_usable and self.rows and self.mixes

    @property
    def plain_channels(self) -> bool:
        """Whether every output channel holds the value channel of its own number."""
        return self.channels is not None and all(row == tuple(range(len(row))) for row in self.channels)

    @property
    def is_usable(self) -> bool:
        """Whether every head holds values of one key/value head alone."""
        return min(self.kv_head) >= 0


def plain_routing(sizes: Sizes) -> Routing:
    """The routing of a box of which nothing unusual is known."""
    heads = range(sizes.num_heads)
    return Routing(
        kv_head=tuple(head // sizes.group_size for head in heads),
        query_head=tuple(heads),
        rows=True,
        mixes=True,
        leaks=False,
        channels=tuple(tuple(range(sizes.value_dim)) for _ in heads),
        random=False,
    )


def routing_of(box: Box, rng: np.random.Generator) -> Routing:
    """The routing of a box, from a few calls.

    Raises:
        CandidateError: it can't be called.
    """
    probe = _Probe(box, rng)
    return Routing(
        kv_head=_one_each(probe.reached_by_kv_heads()),
        query_head=_one_each(probe.reached_by_query_heads()),
        rows=probe.rows_follow_queries(),
        mixes=probe.mixes_tokens(),
        leaks=probe.leaks(),
        channels=probe.channels(),
        random=probe.random,
    )


class _Probe:
    """One ordinary input, and the changes made to it."""

    def __init__(self, box: Box, rng: np.random.Generator) -> None:
        sizes = box.sizes
        batch = 2 if sizes.batched else 1
        self.box, self.sizes = box, sizes
        self.query = rng.normal(size=(batch, sizes.num_heads, sizes.tokens, sizes.head_dim))
        self.key = rng.normal(size=(batch, sizes.num_kv_heads, sizes.tokens, sizes.head_dim))
        self.value = 1.0 + rng.random(size=(batch, sizes.num_kv_heads, sizes.tokens, sizes.value_dim))
        self.context = box.context(self.query, self.key, self.value)
        if not np.isfinite(self.context).any():
            raise CandidateError("what it gives is not a number anywhere, so nothing can be read from it")
        again = box.context(self.query, self.key, self.value, seed=1)
        self.random = not np.array_equal(self.context, again, equal_nan=True)
        self.seeds = range(TRIES) if self.random else (0,)

    def reached_by_kv_heads(self) -> np.ndarray:
        """Which heads hold anything when only one key/value head has values, ``(head, kv head)``."""
        reached = [self._holds(head=one).any(axis=(0, 2)) for one in range(self.sizes.num_kv_heads)]
        return np.stack(reached, axis=-1)

    def mixes_tokens(self) -> bool:
        """Whether any row holds something of more than one token."""
        held = sum(self._holds(token=token).astype(int) for token in range(self.sizes.tokens))
        return bool((np.asarray(held) > 1).any())

    def _holds(self, head: int | slice = slice(None), token: int | slice = slice(None)) -> np.ndarray:
        value = np.zeros_like(self.value)
        value[:, head, token] = self.value[:, head, token]
        parts = [self.box.context(self.query, self.key, value, seed) for seed in self.seeds]
        return np.any([(np.nan_to_num(part) != 0).any(axis=-1) for part in parts], axis=0)

    def reached_by_query_heads(self) -> np.ndarray:
        """Which heads change with each query head, ``(head, query head)``."""
        reached = []
        for head in range(self.sizes.num_heads):
            query = self.query.copy()
            query[:, head] = 3 * self.query[:, head, :, ::-1] + 1
            reached.append(self._changed(self.box.context(query, self.key, self.value)).any(axis=(0, 2)))
        return np.stack(reached, axis=-1)

    def rows_follow_queries(self) -> bool:
        """Whether changing one query changes that row at most, and some query changes its row."""
        reached = np.zeros((self.sizes.tokens, self.sizes.tokens), dtype=bool)
        for token in range(self.sizes.tokens):
            query = self.query.copy()
            query[:, :, token] = 3 * self.query[:, :, token, ::-1] + 1
            reached[:, token] = self._changed(self.box.context(query, self.key, self.value)).any(axis=(0, 1))
        return bool(reached.any()) and not (reached & ~np.eye(self.sizes.tokens, dtype=bool)).any()

    def leaks(self) -> bool:
        """Whether the first sequence changes when the second one does."""
        if len(self.query) < 2:
            return False
        key, value = self.key.copy(), self.value.copy()
        key[1], value[1] = -key[1], 1 + value[1] ** 2
        return bool(self._changed(self.box.context(self.query, key, value))[0].any())

    def channels(self) -> tuple[tuple[int, ...], ...] | None:
        """The value channel in each output channel, from values that are the channel's number for every token."""
        ones = np.ones_like(self.value)
        sums = self.box.context(self.query, self.key, ones)
        numbered = self.box.context(self.query, self.key, ones * np.arange(1.0, self.sizes.value_dim + 1))
        with np.errstate(all="ignore"):
            number = np.moveaxis(numbered / sums, 1, 0)
        found = [self._order(head[np.isfinite(head).all(axis=-1)]) for head in number]
        return None if None in found else tuple(order for order in found if order is not None)

    def _order(self, rows: Floats) -> tuple[int, ...] | None:
        """The channel in each place, from rows that hold channels' numbers; None where they are mixed."""
        if not len(rows):
            return None
        channels = np.rint(rows[0])
        same = np.abs(rows - channels).max(initial=0.0) < 0.2
        whole = same and sorted(channels) == list(range(1, self.sizes.value_dim + 1))
        return tuple(int(channel) - 1 for channel in channels) if whole else None

    def _changed(self, context: Floats) -> np.ndarray:
        """Which rows are no longer what they were, ``(batch, head, query)``."""
        same = (context == self.context) | (np.isnan(context) & np.isnan(self.context))
        return ~same.all(axis=-1)


def _one_each(reached: np.ndarray) -> tuple[int, ...]:
    """For each row, the only column that reaches it; -1 where it is none or several."""
    return tuple(int(np.argmax(row)) if row.sum() == 1 else -1 for row in reached)
