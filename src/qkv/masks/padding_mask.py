"""Padding: keys that are no tokens at all are never attended to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qkv.errors import ShapeError, SpecError
from qkv.masks.intervals import NOTHING, Reach, Span, runs
from qkv.masks.mask import Mask
from qkv.masks.numbers import Numbers, rows_of
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Padding(Mask):
    """A query sees only keys that are tokens. What a *query* that is padding gets is nobody's business.

    Attributes:
        lengths: how many tokens each sequence has, ``(batch,)``; the keys behind them are padding. None reads from the
            positions which keys are tokens.
        queries: whether padding attends to nothing either: queries that stand behind the end see no key. For
            self-attention, whose queries stand where its keys do.
    """

    lengths: Numbers | None = None
    queries: bool = False

    def __post_init__(self) -> None:
        if self.queries and self.lengths is None:
            raise SpecError("padding of queries needs lengths: padding(lengths, queries=True)")

    def allows(self, at: Positions) -> Array:
        """True where the key is a token."""
        if self.lengths is not None:
            lengths = self.lengths.like(at.key)
            ends = lengths[rows_of(lengths, at)]
            return (at.key < ends) & (at.query < ends if self.queries else at.everywhere)
        if at.key_is_token is None:
            return at.everywhere
        return at.key_is_token & at.everywhere

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """The tokens, whoever asks: all see those that every sequence has, and some those that one has."""
        if self.lengths is not None:
            shortest, longest = int(self.lengths.array.min()), int(self.lengths.array.max())
            all_stand_at_tokens = not self.queries or span.last_query < shortest
            one_does = not self.queries or span.first_query < longest
            return Reach(
                span.keys(stop=shortest) if all_stand_at_tokens else NOTHING,
                span.keys(stop=longest) if one_does else NOTHING,
            )
        if at is None or at.key_is_token is None:
            return Reach(span.keys(), span.keys())
        is_token = np.asarray(at.key_is_token)[:, 0, 0, :]
        return Reach(runs(is_token.all(axis=0), span.first_key), runs(is_token.any(axis=0), span.first_key))

    def seams(self) -> set[int]:
        """Where sequences end."""
        return set() if self.lengths is None else set(self.lengths.array.tolist())

    @cached_property
    def _each(self) -> list[Padding]:
        assert self.lengths is not None
        return [Padding(Numbers(length), self.queries) for length in self.lengths.array.reshape(-1, 1)]

    @property
    def varies(self) -> tuple[bool, bool]:
        """By sequence, where there are lengths of several."""
        return self.lengths is not None and len(self.lengths.array) > 1, False

    def alone(self, sequence: int, head: int) -> Mask:
        """The padding of one sequence."""
        if not self.varies[0]:
            return self
        if sequence not in range(len(self._each)):
            raise ShapeError(f"padding holds lengths of {len(self._each)} sequences, and none for sequence {sequence}")
        return self._each[sequence]

    def must_fit(self, key_len: int | None, *, batch: int | None = None, num_heads: int | None = None) -> None:
        """Nothing, where no sequence has more tokens than there are keys, and each has a length."""
        if self.lengths is None:
            return
        lengths = self.lengths.array
        if key_len is not None and lengths.max() > key_len:
            row = int(lengths.argmax())
            raise ShapeError(
                f"padding says that sequence {row} has {lengths[row]} tokens, and there are {key_len} keys: "
                "lengths count the tokens of each sequence, at most one for each key"
            )
        if batch is not None and len(lengths) not in (1, batch):
            raise ShapeError(
                f"padding holds lengths of {len(lengths)} sequences, and there are {batch}: axis batch of lengths "
                f"{lengths.shape} must be {batch} long"
            )

    def __str__(self) -> str:
        if self.lengths is None:
            return "padding"
        return f"padding({self.lengths!r}{', queries=True' if self.queries else ''})"
