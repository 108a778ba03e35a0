"""What a candidate can be given: the judge's probes are made to fit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qkv.oracle import Array, Parameters

Extra = Literal["mask", "padding", "cache_lens", "documents", "bias", "sinks", "source"]
"""What may come along with the tokens, see :class:`qkv.oracle.Inputs`; ``cache_lens`` says how many keys count."""


@dataclass(frozen=True)
class Abilities:
    """What a candidate takes, and which sizes are fixed.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: channels of a query or key head.
        value_dim: channels of a value head.
        embed_dim: channels of a token of x; 0 where query, key and value are given.
        parameters: the candidate's projections; None where query, key and value are given.
        sinks: the candidate's own sinks.
        takes: what may come along.
        max_tokens: longest sequence it takes; None for any.
        batched: whether it takes more than one sequence.
        free_lengths: whether it takes another number of queries than of keys.
        cached: whether a sequence can be given to it bit by bit, with a cache that is ``handed`` over with each call or
            ``kept`` by itself; empty where nothing speaks of one.
        free_sizes: whether heads and channels may be chosen for each call.
        free_heads: whether heads may be more than one where the sizes are free.
        free_width: whether nobody said how wide heads are.
        step: what lengths must be a multiple of.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    embed_dim: int = 0
    parameters: Parameters | None = None
    sinks: Array | None = None
    takes: frozenset[Extra] = frozenset()
    max_tokens: int | None = None
    batched: bool = True
    free_lengths: bool = False
    cached: Literal["", "handed", "kept"] = ""
    free_sizes: bool = False
    free_heads: bool = False
    free_width: bool = False
    step: int = 1

    @property
    def from_tokens(self) -> bool:
        """Whether it is given x and projects itself."""
        return self.parameters is not None


class NotApplicable(Exception):  # noqa: N818 - a signal, not an error
    """A probe that can't be said through this candidate's arguments: it's left out, and nothing is held against it."""
