"""A black box: something that gives context vectors for a query, a key and a value, and shows nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from qkv.adapters.function import FunctionReading
from qkv.adapters.messages import Facts
from qkv.adapters.module import TokensReading
from qkv.oracle import Inputs

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Sizes:
    """The sizes a box is called with.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: channels of a query or key head.
        value_dim: channels of a value head.
        tokens: a number of tokens that it takes.
        batched: whether it takes several sequences in one call.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    tokens: int
    batched: bool = True

    @property
    def group_size(self) -> int:
        """Query heads to a key/value head."""
        return self.num_heads // self.num_kv_heads


class Box(Protocol):
    """What can be identified."""

    sizes: Sizes
    dtype: str

    @property
    def facts(self) -> Facts:
        """What it says of itself."""

    @property
    def words(self) -> Sequence[str]:
        """How it was read, in sentences."""

    @property
    def sinks(self) -> Floats | None:
        """The sinks that it is called with, one a head; None where it has none."""

    def context(self, query: Floats, key: Floats, value: Floats, seed: int = 0) -> Floats:
        """Its context vectors, ``(batch, head, query, value_dim)``.

        Args:
            query: ``(batch, num_heads, query, head_dim)``.
            key: ``(batch, num_kv_heads, key, head_dim)``.
            value: ``(batch, num_kv_heads, key, value_dim)``.
            seed: seed of its own random numbers.

        Raises:
            CandidateError: it can't be called with these.
        """

    def resized(self, sizes: Sizes) -> Box | None:
        """The same box for calls of other sizes; None where they are fixed."""


Reading = TypeVar("Reading", FunctionReading, TokensReading)


@dataclass
class InOneReading(Generic[Reading]):
    """A candidate in one reading, and what that says of it."""

    reading: Reading
    sizes: Sizes
    dtype: str = "float64"

    @property
    def facts(self) -> Facts:
        """What the candidate says of itself."""
        return self.reading.facts

    @property
    def words(self) -> Sequence[str]:
        """How it was read, in sentences."""
        return self.reading.assumptions


@dataclass
class FunctionBox(InOneReading[FunctionReading]):
    """A function of query, key and value."""

    @property
    def sinks(self) -> Floats | None:
        """Some of ours where it is handed its sinks; they are read back."""
        return np.linspace(-0.5, 0.5, self.sizes.num_heads) if self.reading.signature.has("sinks") else None

    def context(self, query: Floats, key: Floats, value: Floats, seed: int = 0) -> Floats:
        """Its context vectors (see `Box.context`)."""
        outcome = self.reading.observe(Inputs(query=query, key=key, value=value, sinks=self.sinks), seed=seed)
        self.dtype = outcome.dtype
        batch, heads, length, _ = query.shape
        return np.transpose(outcome.output.reshape(batch, length, heads, -1), (0, 2, 1, 3))

    def resized(self, sizes: Sizes) -> FunctionBox:
        """The same function for other sizes."""
        spec = self.reading.spec.but(
            num_heads=sizes.num_heads, num_kv_heads=sizes.num_kv_heads, head_dim=sizes.head_dim
        )
        return FunctionBox(replace(self.reading, spec=spec), sizes, self.dtype)
