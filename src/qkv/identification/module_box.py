"""A module as a black box: with one-hot tokens and weights of our own, it is given any query, key and value.

Token ``t`` is one in channel ``t`` and zero elsewhere, so column ``t`` of ``q_proj`` *is* its query. The output
projection is made the identity, and what comes out is the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qkv.adapters.module import TokensReading
from qkv.errors import CandidateError
from qkv.identification.box import Floats, InOneReading, Sizes
from qkv.oracle import Inputs


@dataclass
class ModuleBox(InOneReading[TokensReading]):
    """A module that projects."""

    @property
    def words(self) -> Sequence[str]:
        """How it was read, in sentences."""
        return [*super().words, "query, key and value were put in by one-hot tokens and projections made for them"]

    @property
    def sinks(self) -> Floats | None:
        """Its own."""
        return self.reading.sinks

    def context(self, query: Floats, key: Floats, value: Floats, seed: int = 0) -> Floats:
        """Its context vectors (see `Box.context`), sequence by sequence, since all share the projections."""
        return np.concatenate([self._one(query[b], key[b], value[b], seed) for b in range(len(query))])

    def resized(self, sizes: Sizes) -> ModuleBox | None:
        """The same module for another number of tokens; its heads are as wide as its projections make them."""
        return (
            ModuleBox(self.reading, sizes, self.dtype)
            if replace(sizes, tokens=self.sizes.tokens) == self.sizes
            else None
        )

    def _one(self, query: Floats, key: Floats, value: Floats, seed: int) -> Floats:
        parameters, embed = self.reading.parameters, self.reading.abilities.embed_dim
        query_len, key_len = query.shape[1], key.shape[1]
        crosses = "source" in self.reading.abilities.takes
        if max(query_len, key_len) > embed:
            raise CandidateError(f"tokens of {embed} channels can name {embed} tokens, not {max(query_len, key_len)}")
        if query_len != key_len and not crosses:
            raise CandidateError(f"it takes as many keys as queries, not {key_len} with {query_len}")
        self._put(query, key, value)
        tokens = np.eye(embed)[None]
        source = tokens[:, :key_len] if crosses else None
        outcome = self.reading.observe(Inputs(x=tokens[:, :query_len], source=source, parameters=parameters), seed=seed)
        self.dtype = outcome.dtype
        context = outcome.output[0, :, : len(query) * value.shape[-1]].reshape(query_len, len(query), -1)
        return np.transpose(context, (1, 0, 2))[None]

    def _put(self, query: Floats, key: Floats, value: Floats) -> None:
        """Nothing; gives the module the projections that make these of one-hot tokens, and norms of ones."""
        parameters, learned = self.reading.parameters, self.reading.learned
        embed = self.reading.abilities.embed_dim
        wanted = {
            "q_proj.weight": _columns(query, embed),
            "k_proj.weight": _columns(key, embed),
            "v_proj.weight": _columns(value, embed),
        }
        if parameters.out_proj is not None:
            wanted["out_proj.weight"] = np.eye(*parameters.out_proj.weight.shape)
        for name, norm in (("q_norm", parameters.q_norm), ("k_norm", parameters.k_norm)):
            if norm is not None and norm.weight is not None:
                wanted[f"{name}.weight"] = np.full(norm.weight.shape, 0.0 if norm.plus_one else 1.0)
        if self.reading.sinks is not None:
            wanted["sinks"] = self.reading.sinks
        assert learned is not None
        self.reading.caller.host.assign(learned.holding(wanted))


def _columns(heads: Floats, embed: int) -> Floats:
    """``(head, token, dim)`` as a weight ``(head*dim, embed)`` whose column ``t`` is token ``t``."""
    num_heads, length, width = heads.shape
    weight = np.zeros((num_heads * width, embed))
    weight[:, :length] = np.transpose(heads, (0, 2, 1)).reshape(-1, length)
    return weight


def module_box(reading: TokensReading) -> ModuleBox:
    """The module in one reading, with as many tokens as make heads and tokens tell apart."""
    able = reading.abilities
    most = min(able.embed_dim, able.max_tokens or able.embed_dim)
    tokens = min(TOKENS, most)
    sizes = Sizes(able.num_heads, able.num_kv_heads, able.head_dim, able.value_dim, tokens, batched=False)
    return ModuleBox(reading, sizes)


TOKENS = 7
"""Tokens of the first calls."""
