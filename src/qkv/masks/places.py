"""Places: where queries and keys stand, as masks read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from qkv.errors import SpecError

Array = Any
"""An array of any library that follows the Python array API (NumPy, torch, ...)."""

QueryOffset = Literal["bottom_right", "top_left"] | int
"""Position of the first query: ``bottom_right`` is ``key_len - query_len``, ``top_left`` is 0."""


@dataclass(frozen=True)
class Positions:
    """Where the queries and keys stand. All arrays broadcast to ``(batch, head, query, key)``.

    Attributes:
        query: absolute position of each query, ``(1, 1, query, 1)``.
        key: absolute position of each key, ``(1, 1, 1, key)``.
        query_document: document number of each query, ``(batch, 1, query, 1)``; None where nothing is packed.
        key_document: document number of each key, ``(batch, 1, 1, key)``.
        key_is_token: False where a key is padding, ``(batch, 1, 1, key)``; None where nothing is padded.
        sequence: number of each sequence, ``(batch, 1, 1, 1)``, for masks with numbers for each; None means all.
        head: number of each query head, ``(1, head, 1, 1)``, for masks that differ by head; None means all.
    """

    query: Array
    key: Array
    query_document: Array | None = None
    key_document: Array | None = None
    key_is_token: Array | None = None
    sequence: Array | None = None
    head: Array | None = None

    @classmethod
    def of(cls, query: Array, key: Array, **more: Array | None) -> Positions:
        """Queries beside keys, from the positions of each, ``(query,)`` and ``(key,)``; and what else is known."""
        return cls(query[None, None, :, None], key[None, None, None, :], **more)

    @property
    def everywhere(self) -> Array:
        """True for every pair of a query and a key."""
        return self.query == self.query + 0 * self.key


def position_of_first(query_offset: QueryOffset | str, query_len: int, key_len: int) -> int:
    """The absolute position of the first query.

    Raises:
        SpecError: the offset is neither a whole number nor one of the two names, or a length is below 0.
    """
    for name, length in (("query_len", query_len), ("key_len", key_len)):
        if length < 0:
            raise SpecError(f"{name} is {length}, and must be 0 or more: it counts tokens")
    if isinstance(query_offset, int) and not isinstance(query_offset, bool):
        return query_offset  # as it is: torch.compile can leave it open only if nothing is done to it
    named = {"bottom_right": key_len - query_len, "top_left": 0}
    if query_offset in named:
        return named[str(query_offset)]
    if isinstance(query_offset, bool) or not hasattr(query_offset, "__index__"):
        raise SpecError(
            f"query_offset is {query_offset!r}; write 'bottom_right', 'top_left' or the first query's position"
        )
    return int(query_offset)
