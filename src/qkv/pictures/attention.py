"""Attention: what is shown. The weights of any number of layers and heads, and what their tokens are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from qkv.errors import ShapeError
from qkv.masks.places import QueryOffset, position_of_first
from qkv.pictures.weights import HeadWeights


@dataclass(frozen=True)
class Plan:
    """How large and how exact the pictures are.

    Attributes:
        seconds: how long computing the weights may take; rows are sampled where it would take longer.
        one_of: of how many queries one is computed; None decides by the time.
        first_view: bytes of the pictures that are seen first.
        whole: bytes of everything in the file but the script; the finest pictures that exceed it are left out.
    """

    seconds: float = 60.0
    one_of: int | None = None
    first_view: int = 100_000
    whole: int = 14_000_000


@dataclass(frozen=True)
class LayerWeights:
    """The heads of one layer, and what it is called."""

    name: str
    heads: Sequence[HeadWeights] = field(repr=False)


@dataclass(frozen=True)
class Focus:
    """What a page begins with. A head's id is ``"layer.head"`` by their places.

    Attributes:
        head: the id of the head.
        cell: the numbers of a query and a key; None for none.
        said: what there is to see, in a sentence; empty for nothing.
        wrong: the heads that differ from those that they should equal, and the first cell in which each does.
    """

    head: str
    cell: tuple[int, int] | None = None
    said: str = ""
    wrong: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention weights to be looked at. All heads have the same number of queries and of keys.

    Attributes:
        layers: the layers and their heads.
        title: what is shown.
        tokens: the text of each key's token; None where numbers stand for them.
        query_tokens: the text of each query's token; None takes those of the keys at the same positions.
        query_offset: position of the first query among the keys; None takes what the heads know of it.
        notes: sentences on what is shown; what the pictures leave out is added by itself.
        focus: what is looked at first; None for the first head.
        plan: how large and how exact the pictures are.

    Raises:
        ShapeError: there is nothing to show, or sizes differ.
    """

    layers: Sequence[LayerWeights]
    title: str = "attention weights"
    tokens: Sequence[str] | None = None
    query_tokens: Sequence[str] | None = None
    query_offset: QueryOffset | None = None
    notes: Sequence[str] = ()
    focus: Focus | None = None
    plan: Plan = field(default_factory=Plan)

    def __post_init__(self) -> None:
        shapes = {head.shape for head in self.heads}
        if not shapes:
            raise ShapeError("there is nothing to show: no layer has a head")
        if len(shapes) > 1:
            listed = ", ".join(str(shape) for shape in sorted(shapes))
            raise ShapeError(f"the heads of one view have the same (query_len, key_len), and these have {listed}")
        if 0 in self.shape:
            raise ShapeError(f"there is nothing to show: (query_len, key_len) is {self.shape}")
        given = {"query_tokens": self.query_tokens, "tokens": self.tokens}
        for (name, tokens), length, what in zip(given.items(), self.shape, ("queries", "keys"), strict=True):
            if tokens is not None and len(tokens) != length:
                raise ShapeError(f"there are {len(tokens)} {name} for {length} {what}; give one for each")

    @property
    def heads(self) -> list[HeadWeights]:
        """All heads, layer by layer."""
        return [head for layer in self.layers for head in layer.heads]

    @property
    def shape(self) -> tuple[int, int]:
        """``query_len`` and ``key_len``."""
        return self.heads[0].shape

    @property
    def first_query(self) -> int:
        """Position of the first query among the keys."""
        return (
            self.heads[0].first_query
            if self.query_offset is None
            else position_of_first(self.query_offset, *self.shape)
        )

    @property
    def texts(self) -> tuple[list[str] | None, list[str] | None]:
        """The texts of the queries' tokens and of the keys'; None where there are none."""
        keys = None if self.tokens is None else [str(token) for token in self.tokens]
        if self.query_tokens is not None:
            return [str(token) for token in self.query_tokens], keys
        first, (query_len, key_len) = self.first_query, self.shape
        inside = keys is not None and first >= 0 and first + query_len <= key_len
        return keys[first : first + query_len] if keys is not None and inside else None, keys

    def but(self, **changes: Any) -> Self:
        """The same with some attributes changed."""
        return replace(self, **changes)
