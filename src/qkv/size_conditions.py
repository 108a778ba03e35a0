"""Conditions that a candidate's sizes have to meet: each is found by trying sizes that don't meet it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qkv.adapters.construction import Construction
from qkv.adapters.messages import Array, Call, Config, Hosting
from qkv.adapters.names import ROLES
from qkv.adapters.shaping.sizes import CONTEXT_LENGTH, EMBED_DIM, VALUE_DIM, axes_of
from qkv.errors import CandidateError
from qkv.oracle import Inputs
from qkv.settling import CallableReading
from qkv.shapes import Rule


@dataclass(frozen=True)
class Condition:
    """One condition, and sizes that don't meet it.

    Attributes:
        says: the condition: ``embed_dim must be a multiple of num_heads``.
        free: what may be said where it need not be met.
        tried: the sizes in words: ``embed_dim 172 and num_heads 5``.
        inputs: what to call with.
        kwargs: what to build with; None for what the candidate is built with already.
        becomes: sizes of the output that are others then.
        axes: axes whose size is another then.
    """

    says: str
    free: str
    tried: str
    inputs: Inputs
    kwargs: Mapping[str, Any] | None = None
    becomes: Mapping[int, int] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Trying:
    """A candidate that can be called, and what with.

    Attributes:
        host: who holds it.
        reading: how it is called.
        construction: what it was built with; None where it is not built from a class.
        inputs: what it was called with and ran.
    """

    host: Hosting
    reading: CallableReading
    construction: Construction | None
    inputs: Inputs

    def takes(self, role: str) -> bool:
        """Whether the class takes an argument of this role, by itself or in a config object."""
        given = self.construction.roles.values() if self.construction is not None else ()
        return role in given or self._config is not None

    def name(self, role: str) -> str:
        """What the class calls its argument of a role; the role where it has none."""
        roles = self.construction.roles if self.construction is not None else {}
        return next((name for name, one in roles.items() if one == role), role)

    @property
    def width_role(self) -> str | None:
        """The role of the argument that says how wide all heads are together; None where none does."""
        roles = self.construction.roles if self.construction is not None else {}
        width = self.reading.abilities.num_heads * self.reading.abilities.head_dim
        role = "out_dim" if "out_dim" in roles.values() else "embed_dim"
        value = self.construction.kwargs.get(self.name(role), width) if self.construction is not None else None
        return role if "head_dim" not in roles.values() and self.takes(role) and value == width else None

    def wider(self, width: int, says: str, free: str) -> Condition:
        """A condition that is tried with so many channels of all heads together."""
        able, role = self.reading.abilities, self.width_role or "embed_dim"
        before = able.num_heads * able.head_dim
        tied = able.embed_dim == before
        return Condition(
            says,
            free,
            f"{self.name(role)} {width} and {self.name('num_heads')} {able.num_heads}",
            _channels(self.inputs, width) if tied else self.inputs,
            self.built_with(**dict.fromkeys({role, "embed_dim"} if tied else {role}, width)),
            {before: width},
            {role: width} if width % able.num_heads else {"head_dim": width // able.num_heads},
        )

    def built_with(self, **roles: int) -> dict[str, Any]:
        """The arguments with those of some roles changed."""
        assert self.construction is not None
        kwargs = dict(self.construction.kwargs)
        for name, role in self.construction.roles.items():
            if role in roles and name in kwargs:
                kwargs[name] = roles[role]
        for name, value in kwargs.items():
            if isinstance(value, Config):
                changed = {one: size for role, size in roles.items() for one in ROLES[role] if one in value.values}
                kwargs[name] = replace(value, values={**value.values, **changed})
        return kwargs

    def shape(self, condition: Condition | None = None) -> tuple[int, ...]:
        """The shape of what it returns, under a condition that isn't met.

        Raises:
            CandidateError: it can't be built or called.
        """
        if condition is not None and condition.kwargs is not None:
            self.host.build(condition.kwargs)
        inputs = self.inputs if condition is None else condition.inputs
        args, kwargs = self.reading.bound(inputs)
        axes = axes_of(self.reading.abilities, inputs) | dict(condition.axes if condition is not None else {})
        reply = self.host.call(Call(args, kwargs, dtype=self.reading.caller.dtype or "float32", axes=axes))
        arrays = [one.array.shape for one in reply.returned if one.array.dtype.kind == "f"]
        return tuple(arrays[0]) if arrays else ()

    @property
    def _config(self) -> Config | None:
        kwargs = self.construction.kwargs if self.construction is not None else {}
        return next((value for value in kwargs.values() if isinstance(value, Config)), None)


def conditions(trying: Trying) -> tuple[list[Rule], list[str]]:
    """The conditions that were found, and what need not be met; nothing for a candidate with a cache of its own."""
    rules: list[Rule] = []
    free: list[str] = []
    if trying.reading.caching.required:
        return rules, free
    usual = trying.shape()
    for condition in (one for find in _FINDERS for one in find(trying)):
        seen = _seen(trying, condition, usual)
        if seen:
            rules.append(Rule(condition.says, f"with {condition.tried}: {seen}"))
        else:
            free.append(condition.free)
        if condition.kwargs is not None and trying.construction is not None:
            trying.host.build(trying.construction.kwargs)
    return rules, free


def _seen(trying: Trying, condition: Condition, usual: tuple[int, ...]) -> str:
    """What happens where the condition isn't met; empty where all is well."""
    try:
        shape = trying.shape(condition)
    except CandidateError as error:
        if error.fatal:
            raise
        return error.hint or error.message
    wanted = tuple(condition.becomes.get(size, size) for size in usual)
    if shape == wanted:
        return ""
    dropped = [(b, a) for a, b in zip(shape, wanted, strict=False) if a < b]
    lost = f": {dropped[0][0] - dropped[0][1]} of {dropped[0][0]} channels are dropped" if dropped else ""
    return f"no error, but the output is {shape} in place of {wanted}{lost if len(shape) == len(wanted) else ''}"


# --- the conditions ---------------------------------------------------------------------------------------------------


def _heads_share_the_width(trying: Trying) -> Iterator[Condition]:
    able = trying.reading.abilities
    heads, width = able.num_heads, able.num_heads * able.head_dim
    role = trying.width_role
    if role is None or heads < 2 or not trying.takes("num_heads"):
        return
    one, other = trying.name(role), trying.name("num_heads")
    yield trying.wider(
        width + 2,
        f"{one} must be a multiple of {other}",
        f"{one} need not be a multiple of {other}: the heads then share {width} of {width + 2} channels",
    )
    yield trying.wider(
        width + heads,
        f"{one} / {other}, which is head_dim, must be even",
        f"{one} / {other}, which is head_dim, may be odd",
    )


def _key_heads_are_shared_evenly(trying: Trying) -> Iterator[Condition]:
    able = trying.reading.abilities
    kv_heads = able.num_kv_heads
    if kv_heads == able.num_heads or kv_heads < 2 or not able.num_heads % (kv_heads - 1):
        return
    words = f"{able.num_heads} heads and {kv_heads - 1} of key and value"
    if trying.construction is not None and "num_kv_heads" in trying.construction.roles.values():
        one, other = trying.name("num_heads"), trying.name("num_kv_heads")
        kwargs = trying.built_with(num_kv_heads=kv_heads - 1)
        says = f"{one} must be a multiple of {other}"
        yield Condition(says, f"{one} need not be a multiple of {other}", words, trying.inputs, kwargs)
    elif trying.inputs.key is not None and trying.inputs.value is not None:
        fewer = {"key": trying.inputs.key[:, 1:], "value": trying.inputs.value[:, 1:]}
        says = "the heads must be a multiple of those of key and value"
        yield Condition(says, "key and value may have any number of heads", words, trying.inputs.but(**fewer))


def _width_comes_in_and_goes_out(trying: Trying) -> Iterator[Condition]:
    able = trying.reading.abilities
    roles = trying.construction.roles.values() if trying.construction is not None else ()
    if able.embed_dim == able.num_heads * able.head_dim and {"embed_dim", "out_dim"} <= set(roles):
        one, other = trying.name("embed_dim"), trying.name("out_dim")
        yield Condition(
            f"{one} must be equal to {other}",
            f"{one} and {other} may differ",
            f"{one} {EMBED_DIM} and {other} {able.embed_dim}",
            _channels(trying.inputs, EMBED_DIM),
            trying.built_with(embed_dim=EMBED_DIM),
            axes={"embed_dim": EMBED_DIM},
        )


def _tokens_fit(trying: Trying) -> Iterator[Condition]:
    if trying.construction is None or "context_length" not in trying.construction.roles.values():
        return
    name, tokens = trying.name("context_length"), trying.inputs.lengths[0]
    yield Condition(
        f"a sequence has at most {name} tokens",
        f"a sequence may have more tokens than {name}",
        f"{CONTEXT_LENGTH + 1} tokens and {name} {CONTEXT_LENGTH}",
        _tokens(trying.inputs, CONTEXT_LENGTH + 1),
        trying.built_with(context_length=CONTEXT_LENGTH),
        {tokens: CONTEXT_LENGTH + 1},
    )


def _channels_are_those_it_is_made_for(trying: Trying) -> Iterator[Condition]:
    embed = trying.reading.abilities.embed_dim
    if embed:
        says, free = f"x must have {trying.name('embed_dim')} channels", "x may have any number of channels"
        yield Condition(says, free, f"{embed + 1} channels", _channels(trying.inputs, embed + 1))


def _keys_are_as_many_as_queries(trying: Trying) -> Iterator[Condition]:
    able = trying.reading.abilities
    queries, keys = trying.inputs.lengths
    if able.free_lengths or "source" in able.takes:
        more = keys if keys != queries else 2 * queries - 1
        yield Condition(
            "there must be as many keys as queries",
            "there may be another number of keys than of queries",
            f"{queries} queries and {more} keys",
            trying.inputs if keys != queries else _keys(trying.inputs, more),
        )


def _channels_of_a_head(trying: Trying) -> Iterator[Condition]:
    able, inputs = trying.reading.abilities, trying.inputs
    if inputs.value is None or able.value_dim != able.head_dim:
        return
    dim, heads = able.head_dim, able.num_heads
    yield Condition(
        "a value must have as many channels as a key",
        "a value may have other channels than a key",
        f"{dim} channels of a key and {VALUE_DIM} of a value",
        inputs.but(value=_resized(inputs.value, VALUE_DIM)),
        becomes={dim: VALUE_DIM, heads * dim: heads * VALUE_DIM},
    )
    if trying.reading.spec.rope is None:
        odd = {name: _resized(getattr(inputs, name), dim + 1) for name in ("query", "key", "value")}
        becomes = {dim: dim + 1, heads * dim: heads * (dim + 1)}
        words = f"head_dim {dim + 1}"
        yield Condition("head_dim must be even", "head_dim may be odd", words, inputs.but(**odd), None, becomes)


def _one_sequence(trying: Trying) -> Iterator[Condition]:
    batch = trying.inputs.batch
    if batch > 1:
        one = trying.inputs.map(lambda array: array[:1] if array.shape[0] == batch else array)
        yield Condition("one sequence alone can't be given", "batch may be 1", "batch 1", one, becomes={batch: 1})


_FINDERS: tuple[Callable[[Trying], Iterator[Condition]], ...] = (
    _heads_share_the_width,
    _key_heads_are_shared_evenly,
    _width_comes_in_and_goes_out,
    _channels_are_those_it_is_made_for,
    _tokens_fit,
    _keys_are_as_many_as_queries,
    _channels_of_a_head,
    _one_sequence,
)


# --- inputs of other sizes --------------------------------------------------------------------------------------------


def _resized(array: Array, channels: int) -> Array:
    return np.resize(array, (*array.shape[:-1], channels))


def _channels(inputs: Inputs, channels: int) -> Inputs:
    """The inputs with tokens of so many channels."""
    names = [name for name in ("x", "source", "value_source") if getattr(inputs, name) is not None]
    return inputs.but(**{name: _resized(getattr(inputs, name), channels) for name in names})


def _tokens(inputs: Inputs, tokens: int) -> Inputs:
    """The inputs with so many tokens."""
    return _lengthened(inputs, tokens, ("x", "source", "value_source", "query", "key", "value"))


def _keys(inputs: Inputs, keys: int) -> Inputs:
    """The inputs with so many keys."""
    return _lengthened(inputs, keys, ("source", "value_source", "key", "value"))


def _lengthened(inputs: Inputs, tokens: int, names: tuple[str, ...]) -> Inputs:
    arrays = {name: array for name in names if (array := getattr(inputs, name)) is not None}
    return inputs.but(
        **{name: np.resize(array, (*array.shape[:-2], tokens, array.shape[-1])) for name, array in arrays.items()}
    )
