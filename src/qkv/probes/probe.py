"""Probe: inputs made to expose faults that ordinary ones hide. One kind a function; each says what it exposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.oracle import Inputs
from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Probe:
    """One call to make of the candidate.

    Attributes:
        name: the kind's name, with what tells this one from others of its kind.
        exposes: what it is for, in a clause.
        inputs: what is given.
        seed: seed of the candidate's own random numbers.
        optional: whether a candidate may refuse it: not every one is meant for other numbers of queries than of keys.
    """

    name: str
    exposes: str
    inputs: Inputs
    seed: int = 0
    optional: bool = False

    @property
    def kind(self) -> str:
        """The name of its kind alone. A candidate that refuses one probe of a kind isn't meant for that kind."""
        return self.name.partition(" ")[0]


@dataclass(frozen=True)
class Setting:
    """What probes are made for.

    Attributes:
        spec: the intention.
        abilities: what the candidate takes.
        seed: seed of the inputs.
    """

    spec: AttentionSpec
    abilities: Abilities
    seed: int = 0

    def tokens(self, least: int) -> int:
        """A number of tokens from ``least`` on that no other axis has, or as many as the candidate takes."""
        able = self.abilities
        taken = {able.num_heads, able.num_kv_heads, able.head_dim, able.value_dim, able.embed_dim, 2}
        number = next(number for number in range(least, least + len(taken) + 1) if number not in taken)
        number += -number % able.step
        return number if able.max_tokens is None else min(number, able.max_tokens)

    def inputs(
        self, name: str, *, batch: int = 2, queries: int = 7, keys: int | None = None, gain: float = 1.0,
        head_dim: int | None = None, value_dim: int | None = None, precision: type[np.floating[Any]] = np.float64,
        **extra: Any,
    ) -> Inputs:  # fmt: skip
        """Random inputs of these sizes. ``gain`` multiplies the scores; ``extra`` are further fields of Inputs.

        Tokens, queries, keys and values are drawn in this precision.
        """
        able = self.abilities
        keys = queries if keys is None else keys
        batch = batch if able.batched else 1
        rng = np.random.default_rng([self.seed, *name.encode()])
        sinks = able.sinks
        if self.spec.sinks and sinks is None:
            sinks = rng.normal(size=able.num_heads)
        if self.spec.sinks:
            extra["sinks"] = sinks
        draw = partial(rng.standard_normal, dtype=precision)
        if able.from_tokens:
            x = draw((batch, queries, able.embed_dim)) * gain**0.5
            if keys != queries or "source" in able.takes:
                extra["source"] = draw((batch, keys, able.embed_dim)) * gain**0.5
            return Inputs(x=x, parameters=able.parameters, **extra)
        width = head_dim or able.head_dim
        return Inputs(
            query=gain * draw((batch, able.num_heads, queries, width)),
            key=draw((batch, able.num_kv_heads, keys, width)),
            value=draw((batch, able.num_kv_heads, keys, value_dim or able.value_dim)),
            **extra,
        )


Maker = Callable[[Setting], Iterator[Probe]]

PROBES: dict[str, Maker] = {}
"""Every kind of probe by its name, in the order they are tried."""


def probe(maker: Maker) -> Maker:
    """A decorator that enters a kind of probe, under its function's name."""
    PROBES[maker.__name__.replace("_", "-")] = maker
    return maker


def probes_for(setting: Setting) -> Iterator[Probe]:
    """All probes that fit a setting, the ordinary one first."""
    for maker in PROBES.values():
        yield from maker(setting)
