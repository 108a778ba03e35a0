"""Weights from the outside: with one-hot values a box prints its own weights, however fused it is.

The context of a row is its weights times the values. Where token ``j``'s value is 1 in channel ``j`` and 0 elsewhere,
channel ``j`` of the context *is* the weight on token ``j``. A call carries as many tokens as there are value channels,
and as many times more as there are sequences in it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from qkv.errors import CandidateError
from qkv.identification.box import Box, Floats
from qkv.identification.routing import Routing

Channels = tuple[tuple[int, ...], ...]

DRAWS = 160
"""Runs that are joined where weights are dropped at random: one that is dropped in half of them shows in the others."""


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

    def weights(self, query: Floats, key: Floats) -> Floats:
        """Its weights, ``(batch, head, query, key)``, in ``ceil(key_len / value_dim)`` calls or fewer.

        Args:
            query: ``(batch, num_heads, query, head_dim)``.
            key: ``(batch, num_kv_heads, key, head_dim)``.

        Raises:
            CandidateError: it can't be called with these.
        """
        if not self.routing.random:
            return self._read(query, key, 0)
        # A weight that is dropped is zero, and one that is kept is larger by the same factor each time.
        most: Floats = np.max(self._drawn(query, key, self._draws), axis=0)
        return most * self.kept

    def _drawn(self, query: Floats, key: Floats, draws: int) -> Floats:
        """The weights of several runs: sequences of one call where the box takes several, which drop each their own."""
        if not self.box.sizes.batched:
            return np.stack([self._read(query, key, seed) for seed in range(draws)])
        queries, keys = (np.concatenate([array] * draws) for array in (query, key))
        read = self._read(queries, keys, 0)
        return read.reshape(draws, len(query), *read.shape[1:])

    def find_dropout(self, query: Floats, key: Floats) -> float:
        """The probability with which a weight is dropped; from here on weights are read as if none were."""
        seen = self._drawn(query, key, DRAWS)
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

    def _read(self, query: Floats, key: Floats, seed: int) -> Floats:
        key_len = key.shape[2]
        if self.routing.channels is None:
            raise CandidateError("the channels of the values are mixed, so they can't carry a code")
        own = self.box.sizes.value_dim
        if key_len > own and self.routing.plain_channels and key_len not in self._refused:
            wide = self.box.resized(replace(self.box.sizes, value_dim=key_len))
            try:
                return _coded(wide, query, key, key_len, None, seed) if wide else self._narrow(query, key, seed)
            except CandidateError as error:
                if error.fatal:
                    raise
                self._refused.add(key_len)
        return self._narrow(query, key, seed)

    def _narrow(self, query: Floats, key: Floats, seed: int) -> Floats:
        return _coded(self.box, query, key, self.box.sizes.value_dim, self.routing.channels, seed)


def _coded(box: Box, query: Floats, key: Floats, width: int, channels: Channels | None, seed: int) -> Floats:
    """The weights, read with values of ``width`` channels; the blocks of tokens ride side by side in the batch."""
    batch, key_len = query.shape[0], key.shape[2]
    blocks = [slice(start, min(start + width, key_len)) for start in range(0, key_len, width)]
    values = np.zeros((len(blocks), 1, 1, key_len, width))
    for values_of_block, block in zip(values, blocks, strict=True):
        values_of_block[0, 0, np.arange(block.start, block.stop), np.arange(block.stop - block.start)] = 1.0
    values = np.broadcast_to(values, (len(blocks), batch, key.shape[1], key_len, width))
    contexts = _contexts(box, query, key, values, seed)
    if channels is not None:
        lands = np.argsort(channels, axis=-1)[None, :, None, :]
        contexts = [np.take_along_axis(context, np.broadcast_to(lands, context.shape), axis=-1) for context in contexts]
    read = [context[..., : block.stop - block.start] for context, block in zip(contexts, blocks, strict=True)]
    weights: Floats = np.concatenate(read, axis=-1)
    return weights


MOST_ENTRIES = 1 << 22
"""Entries of values in one call."""


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
    together = max(1, min(blocks, MOST_ENTRIES // max(values[0].size, 1)))
    contexts: list[Floats] = []
    for start in range(0, blocks, together):
        some = values[start : start + together]
        queries, keys = (np.concatenate([array] * len(some)) for array in (query, key))
        context = box.context(queries, keys, np.ascontiguousarray(some.reshape(-1, *some.shape[2:])), seed)
        contexts.extend(context.reshape(len(some), batch, *context.shape[1:]))
    return contexts
