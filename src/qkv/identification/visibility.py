"""Visibility: which keys get a weight at all, for several lengths."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from qkv.errors import CandidateError
from qkv.identification.box import Floats
from qkv.identification.weights import WeightReader

Lengths = tuple[int, int]
"""``query_len`` and ``key_len``."""


@dataclass(frozen=True)
class Sight:
    """What was seen at one pair of lengths.

    Attributes:
        allowed: ``(head, query, key)``: which weights are above zero.
        even: the weights of queries and keys of zeros, ``(head, query, key)``.
        settled: whether other queries and keys leave the same weights above zero.
        seconds: how long one reading of the weights took.
        left: the score that hidden keys keep, where a weight is left for them; None where none is.
    """

    allowed: np.ndarray
    even: Floats
    settled: bool
    seconds: float = 0.0
    left: float | None = None


def sight(reader: WeightReader, lengths: Lengths, rng: np.random.Generator) -> Sight:
    """What the box lets each query see.

    Raises:
        CandidateError: it doesn't take these lengths.
    """
    sizes = reader.box.sizes
    query = np.zeros((1, sizes.num_heads, lengths[0], sizes.head_dim))
    key = np.zeros((1, sizes.num_kv_heads, lengths[1], sizes.head_dim))
    started = time.perf_counter()
    even = reader.weights(query, key)[0]
    seconds = time.perf_counter() - started
    # Nothing but NaN for zeros: they are divided by their own length. Then others have to show all keys.
    usable = np.isfinite(even)
    on = reader.some_keys(lengths[1]) if usable.all() else list(range(lengths[1]))
    drawn = reader.weights(rng.normal(size=query.shape), 0.5 * rng.normal(size=key.shape), on)[0]
    seen = np.isfinite(drawn) & (drawn != 0)
    allowed = even != 0 if usable.all() else np.where(usable, even != 0, seen)
    filled, left = _filled(even)
    return Sight(allowed & ~filled, even, bool((allowed[..., on] == seen).all()), seconds, left)


GAP = 12.0
"""A key whose score is so far below the next one's is hidden, though not by minus infinity."""


def _filled(even: Floats) -> tuple[np.ndarray, float | None]:
    """Which weights are those of keys that were hidden by one finite score, and that score; none as a rule.

    Weights of zeros fall off step by step where a bias makes them; a fill leaves a gap, and one value below it.
    """
    with np.errstate(all="ignore"):
        scores = np.log(even) - np.log(even.max(axis=-1, keepdims=True))
    lowest = np.nanmin(np.where(np.isfinite(scores), scores, np.nan), axis=-1, keepdims=True, initial=0.0)
    below = np.isfinite(scores) & (scores < lowest + 1e-3)
    others = np.where(np.isfinite(scores) & ~below, scores, np.inf).min(axis=-1, keepdims=True)
    gap = others - lowest
    hidden = below & np.isfinite(gap) & (gap > GAP)
    return hidden, float(-gap[np.isfinite(gap) & (gap > GAP)].min()) if hidden.any() else None


@dataclass
class View:
    """Everything that was seen, by lengths.

    Attributes:
        sights: by ``(query_len, key_len)``.
        refused: lengths that the box doesn't take.
    """

    sights: dict[Lengths, Sight] = field(default_factory=dict)
    refused: dict[Lengths, str] = field(default_factory=dict)

    def look(self, reader: WeightReader, lengths: Lengths, rng: np.random.Generator) -> Sight | None:
        """The sight at these lengths; None where the box doesn't take them."""
        if lengths in self.sights:
            return self.sights[lengths]
        if lengths in self.refused:
            return None
        try:
            self.sights[lengths] = sight(reader, lengths, rng)
        except CandidateError as error:
            if error.fatal:
                raise
            self.refused[lengths] = error.message
            return None
        return self.sights[lengths]

    def of_head(self, head: int) -> Mapping[Lengths, np.ndarray]:
        """What one head's queries may attend to, by lengths."""
        return {lengths: seen.allowed[head] for lengths, seen in self.sights.items()}

    def alike(self, heads: Iterable[int]) -> list[list[int]]:
        """The heads in groups, each of which sees the same everywhere."""
        groups: dict[bytes, list[int]] = {}
        for head in heads:
            groups.setdefault(b"".join(seen.tobytes() for seen in self.of_head(head).values()), []).append(head)
        return list(groups.values())

    @property
    def squares(self) -> list[Lengths]:
        """The lengths that are equal, the shortest first."""
        return sorted(lengths for lengths in self.sights if lengths[0] == lengths[1])

    @property
    def square(self) -> Lengths:
        """The largest lengths that are equal, or else the largest."""
        return max(self.sights, key=lambda lengths: (lengths[0] == lengths[1], lengths[1]))
