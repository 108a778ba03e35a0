"""What every mask is: a rule from positions to "may attend", combined with ``&``, ``|`` and ``~``."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qkv.masks.drawing import ASCII, SHADES, Cells, drawn
from qkv.masks.intervals import NOTHING, Reach, Span, difference, intersection, runs, union
from qkv.masks.places import Array, Positions, QueryOffset, position_of_first

LARGE = 2**20
"""More pairs than this are not asked one by one for a row of a picture."""


class Mask(ABC):
    """A rule that says which keys a query may attend to. True means *may attend*, always.

    Masks are frozen dataclasses: they compare and hash by what they say.
    """

    @abstractmethod
    def allows(self, at: Positions) -> Array:
        """Booleans that broadcast to ``(batch, head, query, key)``."""

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """Which of the span's keys all of its queries may attend to, and which any of them may.

        Args:
            span: the queries and keys asked about, each without a gap.
            at: where exactly these queries and keys stand, for documents and padding that are read from there.
        """
        return Reach(NOTHING, span.keys())

    def operands(self) -> tuple[Mask, ...]:
        """The masks that this one is combined from; none for a rule of its own."""
        return tuple(value for value in self.__dict__.values() if isinstance(value, Mask))

    def seams(self) -> set[int]:
        """Positions at which what the mask says changes at once, so that it pays to take the queries apart there."""
        return set().union(*(operand.seams() for operand in self.operands()))

    def within(self, span: Span) -> Mask:
        """A mask that says the same in a span, without the parts of this one that don't matter there."""
        return self

    def parts(self) -> Iterator[Mask]:
        """The mask itself and every mask it is combined from."""
        yield self
        for operand in self.operands():
            yield from operand.parts()

    @property
    def varies(self) -> tuple[bool, bool]:
        """Whether the mask differs from sequence to sequence, and whether from head to head."""
        inner = [operand.varies for operand in self.operands()]
        return any(by_sequence for by_sequence, _ in inner), any(by_head for _, by_head in inner)

    def alone(self, sequence: int, head: int) -> Mask:
        """The mask as one sequence and one query head sees it; its numbers are those of that sequence alone."""
        if not any(self.varies):
            return self
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return replace(
            self,  # type: ignore[type-var]  # every concrete mask is a dataclass
            **{name: value.alone(sequence, head) for name, value in fields.items() if isinstance(value, Mask)},
        )

    def must_fit(self, key_len: int | None, *, batch: int | None = None, num_heads: int | None = None) -> None:
        """Nothing, where the numbers that the mask carries are those of so many keys, sequences and heads.

        Raises:
            ShapeError: they aren't. None stands for what isn't known.
        """
        for operand in self.operands():
            operand.must_fit(key_len, batch=batch, num_heads=num_heads)

    def dense(
        self,
        query_len: int,
        key_len: int,
        *,
        query_offset: QueryOffset = "bottom_right",
        batch: int | None = None,
        xp: Any = np,
    ) -> Array:
        """The truth table, True = may attend: ``(query, key)``, or ``(batch, head, query, key)`` where the mask varies.

        Args:
            query_len: how many queries there are.
            key_len: how many keys there are, from position 0 on.
            query_offset: position of the first query. ``bottom_right`` lets the last query stand at the last key.
            batch: how many sequences there are; the table then has four axes. An axis along which nothing varies may
                be 1 long.
            xp: the library to make it with: ``numpy``, ``torch``, ...

        Raises:
            ShapeError: the mask carries numbers for more keys or sequences, or for fewer.
        """
        self.must_fit(key_len, batch=batch)
        first = position_of_first(query_offset, query_len, key_len)
        query, key = xp.arange(query_len) + first, xp.arange(key_len)
        allows = self.allows(Positions.of(query, key))
        shape = np.broadcast_shapes(tuple(allows.shape), (batch or 1, 1, query_len, key_len))
        allows = xp.broadcast_to(allows, shape)  # batch head query key
        return allows[0, 0] if batch is None and not any(self.varies) else allows

    def mask_mod(self, query_offset: int = 0) -> Callable[[Array, Array, Array, Array], Array]:
        """The mask as flex attention's function of the indices of sequence, head, query and key.

        Args:
            query_offset: position of the first query: ``key_len - query_len`` lets the last query stand at the last
                key.
        """
        return lambda batch, head, query, key: self.allows(
            Positions(query + query_offset, key, sequence=batch, head=head)
        )

    def picture(
        self,
        query_len: int,
        key_len: int,
        *,
        query_offset: QueryOffset = "bottom_right",
        sequence: int = 0,
        head: int = 0,
        ascii_only: bool = False,
    ) -> str:
        """The truth table as text, a row for each query and a column for each key, or for several where it is large.

        Args:
            query_len: how many queries there are.
            key_len: how many keys there are.
            query_offset: position of the first query.
            sequence: of which sequence, where the mask varies.
            head: of which query head, where the mask varies.
            ascii_only: whether the picture is made of ``#``, ``+`` and ``.``.
        """
        self.must_fit(key_len)
        mask = self.alone(sequence, head)
        first = position_of_first(query_offset, query_len, key_len)

        def reach(start: int, stop: int) -> Reach:
            span = Span(first + start, first + stop - 1, 0, key_len - 1)
            return mask.reach(span) if (stop - start) * key_len > LARGE else mask.pair_by_pair(span)

        return drawn(Cells.of(query_len, key_len), reach, ASCII if ascii_only else SHADES)

    def pair_by_pair(self, span: Span) -> Reach:
        """What `reach` tells, exactly, by asking of every pair in the span; of a mask of one sequence and head."""
        query, key = np.arange(span.first_query, span.last_query + 1), np.arange(span.first_key, span.last_key + 1)
        allows = self.allows(Positions.of(query, key))[0, 0]
        return Reach(runs(allows.all(axis=0), span.first_key), runs(allows.any(axis=0), span.first_key))

    def shifted(self, offset: int) -> Mask:
        """The same mask, ``offset`` tokens further on: what it said of position 0 it says of position ``offset``."""
        return Shifted(self, offset)

    def __and__(self, other: object) -> Mask:
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: object) -> Mask:
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True)
class And(Mask):
    """May attend where both masks allow it."""

    left: Mask
    right: Mask

    def allows(self, at: Positions) -> Array:
        """True where both masks allow it."""
        return self.left.allows(at) & self.right.allows(at)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see what both masks let all see; some see no more than what each mask lets some see."""
        left, right = self.left.reach(span, at), self.right.reach(span, at)
        return Reach(intersection(left.every, right.every), intersection(left.some, right.some))

    def within(self, span: Span) -> Mask:
        """The other side, where one allows everything."""
        left, right = self.left.within(span), self.right.within(span)
        return right if _all(left, span) else left if _all(right, span) else And(left, right)

    def __str__(self) -> str:
        left = f"({self.left})" if isinstance(self.left, Or) else str(self.left)
        # Python reads a & b & c from the left, so an And on the right needs its brackets to be read back as it is.
        right = f"({self.right})" if isinstance(self.right, And | Or) else str(self.right)
        return f"{left} & {right}"


@dataclass(frozen=True)
class Or(Mask):
    """May attend where either mask allows it."""

    left: Mask
    right: Mask

    def allows(self, at: Positions) -> Array:
        """True where either mask allows it."""
        return self.left.allows(at) | self.right.allows(at)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """Some see what either mask lets some see; all see no less than what each mask lets all see."""
        left, right = self.left.reach(span, at), self.right.reach(span, at)
        return Reach(union((left.every, right.every)), union((left.some, right.some)))

    def within(self, span: Span) -> Mask:
        """The other side, where one allows nothing."""
        left, right = self.left.within(span), self.right.within(span)
        return right if not left.reach(span).some else left if not right.reach(span).some else Or(left, right)

    def __str__(self) -> str:
        right = f"({self.right})" if isinstance(self.right, Or) else str(self.right)
        return f"{self.left} | {right}"


@dataclass(frozen=True)
class Not(Mask):
    """May attend where the mask does not allow it."""

    of: Mask

    def allows(self, at: Positions) -> Array:
        """True where the mask does not allow it."""
        return ~self.of.allows(at)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see what the mask lets none see, and the other way round."""
        hidden = self.of.reach(span, at)
        return Reach(difference(span.keys(), hidden.some), difference(span.keys(), hidden.every))

    def __str__(self) -> str:
        return f"~({self.of})" if isinstance(self.of, And | Or) else f"~{self.of}"


@dataclass(frozen=True)
class Shifted(Mask):
    """The same mask, ``offset`` tokens further on."""

    of: Mask
    offset: int

    def allows(self, at: Positions) -> Array:
        """What the mask says of the positions ``offset`` tokens before these."""
        return self.of.allows(replace(at, query=at.query - self.offset, key=at.key - self.offset))

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """The keys that the mask reaches ``offset`` tokens before, moved on."""
        return self.of.reach(span.moved(-self.offset), at).moved(self.offset)

    def seams(self) -> set[int]:
        """The mask's own, moved on."""
        return {seam + self.offset for seam in self.of.seams()}

    def must_fit(self, key_len: int | None, *, batch: int | None = None, num_heads: int | None = None) -> None:
        """Nothing; what is moved may carry numbers of any length."""
        self.of.must_fit(None, batch=batch, num_heads=num_heads)

    def __str__(self) -> str:
        of = f"({self.of})" if isinstance(self.of, And | Or | Not) else str(self.of)
        return f"{of}.shifted({self.offset})"


def _all(mask: Mask, span: Span) -> bool:
    return mask.reach(span).every == span.keys()
