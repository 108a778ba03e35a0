"""What every mask is: a rule from positions to "may attend", combined with ``&``, ``|`` and ``~``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

Array = Any
"""An array of any library that follows the Python array API (NumPy, torch, ...)."""


@dataclass(frozen=True)
class Positions:
    """Where the queries and keys stand. All arrays broadcast to ``(batch, head, query, key)``.

    Attributes:
        query: absolute position of each query, ``(1, 1, query, 1)``.
        key: absolute position of each key, ``(1, 1, 1, key)``.
        query_document: document number of each query, ``(batch, 1, query, 1)``; None where nothing is packed.
        key_document: document number of each key, ``(batch, 1, 1, key)``.
        key_is_token: False where a key is padding, ``(batch, 1, 1, key)``; None where nothing is padded.
    """

    query: Array
    key: Array
    query_document: Array | None = None
    key_document: Array | None = None
    key_is_token: Array | None = None

    @property
    def everywhere(self) -> Array:
        """True for every pair of a query and a key."""
        return self.query == self.query + 0 * self.key


@dataclass(frozen=True)
class Span:
    """Some queries beside some keys, by the absolute positions of the first and the last of each."""

    first_query: int
    last_query: int
    first_key: int
    last_key: int


class Mask(ABC):
    """A rule that says which keys a query may attend to. True means *may attend*, always."""

    @abstractmethod
    def allows(self, at: Positions) -> Array:
        """Booleans that broadcast to ``(batch, head, query, key)``."""

    def throughout(self, span: Span) -> bool | None:
        """What the mask says of every pair in a span alike; None where the pairs have to be asked one by one."""
        return None

    def parts(self) -> Iterator[Mask]:
        """The mask itself and every mask it is combined from."""
        yield self
        for field in fields(self):  # type: ignore[arg-type]  # every concrete mask is a dataclass
            value = getattr(self, field.name)
            if isinstance(value, Mask):
                yield from value.parts()

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

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

    def throughout(self, span: Span) -> bool | None:
        """False where one mask hides the whole span, True where both allow it."""
        sides = self.left.throughout(span), self.right.throughout(span)
        return False if False in sides else None if None in sides else True

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

    def throughout(self, span: Span) -> bool | None:
        """True where one mask allows the whole span, False where both hide it."""
        sides = self.left.throughout(span), self.right.throughout(span)
        return True if True in sides else None if None in sides else False

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

    def throughout(self, span: Span) -> bool | None:
        """The opposite of what the mask says."""
        said = self.of.throughout(span)
        return None if said is None else not said

    def __str__(self) -> str:
        return f"~({self.of})" if isinstance(self.of, And | Or) else f"~{self.of}"
