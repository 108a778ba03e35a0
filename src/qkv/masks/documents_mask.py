"""Documents: texts packed into one sequence don't see each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from qkv.errors import ShapeError
from qkv.masks.intervals import NOTHING, Reach, Span, intersection, runs, union
from qkv.masks.mask import Mask
from qkv.masks.numbers import Numbers, rows_of
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Documents(Mask):
    """A query sees the keys of its own document. Everything is one document where none are given.

    Attributes:
        ids: the document of each token, ``(batch, token)`` or ``(token,)`` for all sequences alike, counted from
            position 0. Where no token stands there is no document: such a query sees nothing. None reads the documents
            from the positions.
    """

    ids: Numbers | None = None

    def allows(self, at: Positions) -> Array:
        """True where query and key are of one document."""
        if self.ids is not None:
            (query, there), (key, here) = self._document_at(at.query, at), self._document_at(at.key, at)
            return (query == key) & there & here
        if at.query_document is None or at.key_document is None:
            return at.everywhere
        return at.query_document == at.key_document

    def _document_at(self, position: Array, at: Positions) -> tuple[Array, Array]:
        """The document at each position, and whether a token stands there."""
        ids = self._rows.like(position)
        tokens = ids.shape[1]
        return ids[rows_of(ids, at), position % tokens], (position >= 0) & (position < tokens)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see a document that all are of; some see every document that one of them is of."""
        if self.ids is not None:
            seen = [row.reach(span) for row in self._runs]
        elif at is not None and at.query_document is not None and at.key_document is not None:
            seen = list(_by_positions(at.query_document, at.key_document, span.first_key))
        else:
            return Reach(span.keys(), span.keys())
        every, some = seen[0]
        for one in seen[1:]:
            every, some = intersection(every, one.every), union((some, one.some))
        return Reach(intersection(every, span.keys()), intersection(some, span.keys()))

    def seams(self) -> set[int]:
        """Where documents begin."""
        return set() if self.ids is None else {start for row in self._runs for start in row.bounds[:-1]}

    @cached_property
    def _rows(self) -> Numbers:
        """The ids, ``(batch or 1, token)``."""
        assert self.ids is not None
        return Numbers(np.atleast_2d(self.ids.array))

    @cached_property
    def _runs(self) -> list[Runs]:
        return [Runs.of(row) for row in self._rows.array]

    @cached_property
    def _each(self) -> list[Documents]:
        return [Documents(Numbers(row)) for row in self._rows.array]

    @property
    def varies(self) -> tuple[bool, bool]:
        """By sequence, where there are ids for several."""
        return self.ids is not None and len(self._rows.array) > 1, False

    def alone(self, sequence: int, head: int) -> Mask:
        """The documents of one sequence."""
        if not self.varies[0]:
            return self
        if sequence not in range(len(self._each)):
            raise ShapeError(f"documents hold ids for {len(self._each)} sequences, and none for sequence {sequence}")
        return self._each[sequence]

    def must_fit(self, key_len: int | None, *, batch: int | None = None, num_heads: int | None = None) -> None:
        """Nothing, where each key has an id, and each sequence."""
        if self.ids is None:
            return
        rows, tokens = self._rows.array.shape
        if key_len is not None and tokens != key_len:
            raise ShapeError(
                f"documents hold ids for {tokens} tokens, and there are {key_len} keys: axis token of ids "
                f"{self.ids.array.shape} must be {key_len} long, one id for each key"
            )
        if batch is not None and rows not in (1, batch):
            raise ShapeError(
                f"documents hold ids for {rows} sequences, and there are {batch}: axis batch of ids "
                f"{self.ids.array.shape} must be {batch} long, or left out where all sequences are alike"
            )

    def __str__(self) -> str:
        return "documents" if self.ids is None else f"documents({self.ids!r})"


class Runs(NamedTuple):
    """One sequence as runs of tokens of one document.

    Attributes:
        bounds: position of each run's first token, and how many tokens there are.
        documents: each run's document, ``(run,)``. A document may come back later.
        each_once: whether none does.
    """

    bounds: list[int]
    documents: Array
    each_once: bool

    @classmethod
    def of(cls, ids: Array) -> Runs:
        """The runs of a sequence, from the document of each token, ``(token,)``."""
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        documents = ids[starts]
        return cls([*starts.tolist(), len(ids)], documents, len(np.unique(documents)) == len(documents))

    def reach(self, span: Span) -> Reach:
        """The keys that queries reach, wherever they stand."""
        first, last = max(span.first_query, 0), min(span.last_query, self.bounds[-1] - 1)
        if first > last:
            return Reach(NOTHING, NOTHING)
        met = slice(bisect_right(self.bounds, first) - 1, bisect_right(self.bounds, last))
        documents = self.documents[met]
        seen = ((met.start, met.stop),) if self.each_once else runs(np.isin(self.documents, documents), 0)
        some = tuple((self.bounds[start], self.bounds[stop]) for start, stop in seen)
        all_of_one = (first, last) == span[:2] and (documents == documents[0]).all()
        return Reach(some if all_of_one else NOTHING, some)


def _by_positions(query_document: Array, key_document: Array, first_key: int) -> Iterator[Reach]:
    """The keys that queries reach in each sequence, from ``(batch, 1, query, 1)`` and ``(batch, 1, 1, key)``."""
    queries, keys = np.asarray(query_document)[:, 0, :, 0], np.asarray(key_document)[:, 0, 0, :]
    for of_query, of_key in zip(queries, keys, strict=True):
        met = np.unique(of_query)
        some = runs(np.isin(of_key, met), first_key)
        yield Reach(some if len(met) == 1 else NOTHING, some)
