"""Handing over: a sequence given to a candidate chunk by chunk, with its cache; the chunks' outputs put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.binding import Signature
from qkv.adapters.caches.ways import (
    Array,
    Room,
    Way,
    asks_for_one,
    is_of_a_cache,
    is_overwritten,
    speaks_of_one,
    ways_of,
)
from qkv.adapters.calling import Caller, Outcome, found, outcome
from qkv.adapters.givers import handed_mask
from qkv.adapters.messages import Call, Facts, Handed, Reply
from qkv.adapters.written_masks import MaskForm
from qkv.errors import CandidateError
from qkv.oracle import Inputs
from qkv.oracle.chunks import chunks, in_chunks
from qkv.spec import AttentionSpec

ROLES = ("cache", "k_cache", "v_cache")

ROOM = 64
"""Tokens that a cache has room for where the candidate doesn't say how many it takes."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""No arguments to be handed over in place of the usual ones."""


@dataclass
class Caching:
    """What is known of a candidate's cache.

    Attributes:
        ways: ways to exercise it; the one that went well comes first.
        overwritten: whether a cache that the candidate keeps needs no emptying.
        required: whether there is no call without it.
        said: whether anything of the candidate's speaks of one.
        proven: whether a cache that it keeps was seen to hold something of the tokens.
    """

    ways: list[Way] = field(default_factory=list)
    overwritten: bool = False
    required: bool = False
    said: bool = True
    proven: bool = False

    @classmethod
    def of(cls, signature: Signature, facts: Facts) -> Caching:
        """What a candidate says of its cache."""
        ways = ways_of(signature, facts)
        required = any(signature.has(role) and signature.roles[role].required for role in ROLES)
        said = required or any(way.kind != "own" for way in ways) or speaks_of_one(signature, facts)
        return cls(ways, is_overwritten(signature, facts), bool(ways) and required, said)

    @property
    def how(self) -> Literal["", "handed", "kept"]:
        """Whether it is handed over with each call, or kept by the candidate; empty where nothing speaks of one."""
        if not self.ways:
            return ""
        return "kept" if self.ways[0].kind == "own" else "handed"


class Cached(Protocol):
    """What is asked of a reading."""

    caller: Caller
    signature: Signature
    spec: AttentionSpec
    mask_form: MaskForm
    caching: Caching

    def room(self, inputs: Inputs) -> Room:
        """How large its cache has to be for these inputs."""

    def bound(self, inputs: Inputs, handed: Mapping[str, Any] = ...) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call with these inputs; ``handed`` has some of them by role."""

    def shaped(self, inputs: Inputs) -> tuple[Callable[[Array], Array | None], str]:
        """What turns an array of the output's own shape into ``(batch, query, width)``, and the shape in words."""


def as_chunk(spec: AttentionSpec, inputs: Inputs) -> AttentionSpec:
    """The spec of a call with these inputs: the queries of a chunk stand behind the keys in the cache."""
    return spec.but(query_offset="bottom_right") if inputs.steps else spec


def observed(reading: Cached, inputs: Inputs, seed: int) -> Outcome:
    """What a candidate gives for a sequence that is handed over in chunks.

    Raises:
        NotApplicable: nothing speaks of a cache, and none shows.
        CandidateError: it fails under every way of exercising its cache; the error is that of the likeliest.
    """
    caching, first_error = reading.caching, None
    for way in list(caching.ways):
        try:
            given = _observed(reading, way, inputs, seed)
        except CandidateError as error:
            if error.fatal:
                raise
            first_error = first_error or error
        else:
            caching.ways = [way, *(other for other in caching.ways if other is not way)]
            return given
    if first_error is None or not (caching.said or caching.proven):
        caching.ways = []
        raise NotApplicable("it has no cache")
    raise first_error


def _observed(reading: Cached, way: Way, inputs: Inputs, seed: int) -> Outcome:
    earlier = [] if inputs.earlier is None else _parts(inputs.earlier)
    parts = _parts(inputs)
    together = [*earlier, *parts]
    calls = [_call(reading, way, part, seed) for part in together]
    if earlier:
        begins = calls[len(earlier)]
        calls[len(earlier)] = replace(begins, anew="overwritten" if reading.caching.overwritten else "emptied")
    reply, dtype = reading.caller.request(replace(calls[0], then=calls[1:]))
    if way.kind == "own" and len(calls) > 1 and not reading.caching.proven:
        if not (
            _holds_tokens(reading, way, together, seed, reply) or _reaches_on(reading, way, together[0], calls, reply)
        ):
            raise CandidateError("it keeps no keys and values from one call to the next")
        reading.caching.proven = True
    replies = [reply, *reply.then][len(earlier) :]
    outputs = [found(one, *reading.shaped(part)) for one, part in zip(replies, parts, strict=True)]
    whole = np.concatenate([output.array for output in outputs], axis=1)
    changed = {name for one in replies for name in reading.signature.named(one.changed)}
    first = outcome(replies[0], dtype, outputs[0], None, sorted(changed))
    return Outcome(whole, first.dtype, None, first.changed, replies[-1].printed)


def _parts(inputs: Inputs) -> list[Inputs]:
    return chunks(inputs) if in_chunks(inputs) else [inputs]


def _call(reading: Cached, way: Way, part: Inputs, seed: int) -> Call:
    signature, room = reading.signature, reading.room(part)
    arguments = {role: signature.roles[role] for role in ROLES if signature.has(role)}
    handed: dict[str, Any] = {
        role: Handed(argument.name, way.first(role, argument, room)) for role, argument in arguments.items()
    }
    if signature.has("use_cache"):
        handed["use_cache"] = True
    if way.wide:
        handed["mask"] = _wide_mask(reading, part, room)
    args, kwargs = reading.bound(part, handed)
    return Call(args, kwargs, seed=seed, room=room.sizes if way.kind == "own" else {})


def _wide_mask(reading: Cached, part: Inputs, room: Room) -> Array:
    """The mask with a column for every token that there is room for; those that are still to come are hidden."""
    may_attend = handed_mask(reading.signature, as_chunk(reading.spec, part), part)
    ahead = room.tokens - may_attend.shape[-1]
    return reading.mask_form.written(np.pad(may_attend, [(0, 0)] * 3 + [(0, max(ahead, 0))]))


def _negated(inputs: Inputs) -> Inputs:
    """Other tokens of the same shapes."""
    return inputs.map(lambda array: -array if array.dtype.kind == "f" else array)


def _holds_tokens(reading: Cached, way: Way, parts: Sequence[Inputs], seed: int, reply: Reply) -> bool:
    """Whether the candidate kept what may be keys and values: it differs with the tokens, unlike masks and tables."""
    asked_for = asks_for_one(reading.signature)
    names = [name for name in reply.kept if is_of_a_cache(name, asked_for=asked_for)]
    if not names:
        return False
    other = [_call(reading, way, _negated(part), seed) for part in parts]
    again, _ = reading.caller.request(replace(other[0], then=other[1:]))
    return any(again.kept.get(name) != reply.kept[name] for name in names)


def _reaches_on(reading: Cached, way: Way, first: Inputs, calls: Sequence[Call], reply: Reply) -> bool:
    """Whether a call gives other numbers after other tokens: whatever it is called, something is kept and read."""
    other = _call(reading, way, _negated(first), calls[0].seed)
    again, _ = reading.caller.request(replace(other, then=calls[1:]))
    pairs = zip(reply.then[0].returned, again.then[0].returned, strict=True)
    return any(not np.array_equal(one.array, two.array, equal_nan=True) for one, two in pairs)
