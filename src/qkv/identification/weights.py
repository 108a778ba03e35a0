"""Weights from the outside: with one-hot values a box prints its own weights, however fused it is.

The context of a row is its weights times the values. Where token ``j``'s value is 1 in channel ``j`` and 0 elsewhere,
channel ``j`` of the context *is* the weight on token ``j``. A call carries as many tokens as there are value channels,
and as many times more as there are sequences in it; so whoever needs the weights on a few keys asks for these alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qkv.errors import CandidateError
from qkv.identification.box import Box, Floats
from qkv.identification.routing import Routing

Channels = tuple[tuple[int, ...], ...]

DRAWS = 160
"""Runs that are joined where weights are dropped at random: one that is dropped in half of them shows in the others."""


SOME = 32
"""Keys, at least, that stand for all where weights on all of them take long to read."""


class WeightReader:
    """Reads the weights of a box, whatever value widths it takes.

    Args:
        box: the box.
        routing: where its heads and channels lead.
    """

    def __init__(self, box: Box, routing: Routing) -> None:
        self.box, self.routing = box, routing
        self.kept = 1.0
        """The share of weights that a run keeps; the kept ones are larger by as much."""
        self._refused: set[int] = set()
        self._draws = DRAWS

    def of(self, box: Box, routing: Routing) -> WeightReader:
        """A reader of the same box for other sizes, that knows what this one knows of dropout."""
        other = WeightReader(box, routing)
        other.kept, other._draws = self.kept, self._draws
        return other

    def weights(self, query: Floats, key: Floats, on: Sequence[int] | None = None) -> Floats:
        """Its weights, ``(batch, head, query, key)``, in ``ceil(number of keys / value_dim)`` calls or fewer.

        Args:
            query: ``(batch, num_heads, query, head_dim)``.
            key: ``(batch, num_kv_heads, key, head_dim)``.
            on: the keys whose weights are read, in this order; None for all.

        Raises:
            CandidateError: it can't be called with these.
        """
        on = range(key.shape[2]) if on is None else on
        if not self.routing.random:
            return self._read(query, key, on, 0)
        # A weight that is dropped is zero, and one that is kept is larger by the same factor each time.
        most: Floats = np.max(self._drawn(query, key, on, self._draws), axis=0)
        return most * self.kept

    def _drawn(self, query: Floats, key: Floats, on: Sequence[int], draws: int) -> Floats:
        """The weights of several runs: sequences of one call where the box takes several, which drop each their own."""
        if not self.box.sizes.batched:
            return np.stack([self._read(query, key, on, seed) for seed in range(draws)])
        queries, keys = (np.concatenate([array] * draws) for array in (query, key))
        read = self._read(queries, keys, on, 0)
        return read.reshape(draws, len(query), *read.shape[1:])

    def find_dropout(self, query: Floats, key: Floats) -> float:
        """The probability with which a weight is dropped; from here on weights are read as if none were."""
        seen = self._drawn(query, key, range(key.shape[2]), DRAWS)
        most: Floats = seen.max(axis=0)
        alive = most > 0
        share = float(((seen == 0) & alive).sum() / (alive.sum() * DRAWS))
        # Where nothing else takes weight, rows of kept weights sum to exactly 1 / (1 - p). People write two digits.
        sums = most.sum(axis=-1)
        exact, short = 1 - 1 / float(sums.max()), round(share, 2)
        even = abs(float(sums.max() - sums.min())) < 1e-4
        probability = exact if even and abs(exact - share) < 0.05 else short
        self.kept = 1 - probability
        # As many runs as leave no weight dropped in all of them, within one in 10^9.
        self._draws = max(2, math.ceil(math.log(1e-9) / math.log(max(probability, 1e-9))))
        return probability

    def some_keys(self, key_len: int) -> list[int]:
        """All keys where one sequence tells their weights, and some that lie spread out where it takes several."""
        width = self._with_channels(key_len).sizes.value_dim
        return np.linspace(0, key_len - 1, min(max(width, SOME), key_len)).astype(int).tolist()

    def _read(self, query: Floats, key: Floats, on: Sequence[int], seed: int) -> Floats:
        if self.routing.channels is None:
            raise CandidateError("the channels of the values are mixed, so they can't carry a code")
        channels = None if self.routing.plain_channels else self.routing.channels
        box = self._with_channels(len(on))
        try:
            return _coded(box, query, key, on, channels, seed)
        except CandidateError as error:
            if error.fatal or box is self.box:
                raise
            self._refused.add(len(on))
        return _coded(self.box, query, key, on, channels, seed)

    def _with_channels(self, count: int) -> Box:
        """The box for values of so many channels, where it takes them; else as it is."""
        sizes = self.box.sizes
        if count <= sizes.value_dim or not self.routing.plain_channels or count in self._refused:
            return self.box
        return self.box.resized(replace(sizes, value_dim=count)) or self.box


def _coded(box: Box, query: Floats, key: Floats, on: Sequence[int], channels: Channels | None, seed: int) -> Floats:
    """The weights on some keys; blocks of as many of them as values have channels ride side by side in the batch."""
    (batch, _, key_len, _), width = key.shape, box.sizes.value_dim
    blocks = [list(on[start : start + width]) for start in range(0, len(on), width)]
    values = np.zeros((len(blocks), 1, 1, key_len, width))
    for values_of_block, block in zip(values, blocks, strict=True):
        values_of_block[0, 0, block, np.arange(len(block))] = 1.0
    values = np.broadcast_to(values, (len(blocks), batch, *key.shape[1:3], width))
    contexts = _contexts(box, query, key, values, seed)
    if channels is not None:
        lands = np.argsort(channels, axis=-1)[None, :, None, :]
        contexts = [np.take_along_axis(context, np.broadcast_to(lands, context.shape), axis=-1) for context in contexts]
    read = [context[..., : len(block)] for context, block in zip(contexts, blocks, strict=True)]
    weights: Floats = np.concatenate(read, axis=-1)
    return weights


MOST_ENTRIES = 1 << 22
"""Entries of values, and of scores, in one call: memory is asked of the system anew for larger ones."""


def _contexts(box: Box, query: Floats, key: Floats, values: Floats, seed: int) -> list[Floats]:
    """The context for each of several values: in one call where the box takes several sequences."""
    blocks, batch = values.shape[:2]
    if not box.sizes.batched:
        one_by_one = [
            [
                box.context(query[b : b + 1], key[b : b + 1], np.ascontiguousarray(value[b : b + 1]), seed)
                for b in range(batch)
            ]
            for value in values
        ]
        return [np.concatenate(contexts) for contexts in one_by_one]
    entries = max(values[0].size, query[..., 0].size * key.shape[2])
    together = max(1, min(blocks, MOST_ENTRIES // max(entries, 1)))
    contexts: list[Floats] = []
    for start in range(0, blocks, together):
        some = values[start : start + together]
        queries, keys = (np.concatenate([array] * len(some)) for array in (query, key))
        context = box.context(queries, keys, np.ascontiguousarray(some.reshape(-1, *some.shape[2:])), seed)
        contexts.extend(context.reshape(len(some), batch, *context.shape[1:]))
    return contexts
