"""Ways: what a candidate's cache may be, by what the candidate says of it; the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from qkv.adapters.binding import Signature
from qkv.adapters.messages import Argument, Facts, Fresh

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Room:
    """How large a cache has to be, and in which order its axes stand.

    Attributes:
        batch: sequences.
        num_kv_heads: key/value heads.
        tokens: the most that it must hold.
        head_dim: channels of a key.
        value_dim: channels of a value.
        embed_dim: channels of a token; 0 where none are given.
        laid_out: puts ``(batch, head, token, dim)`` in the order of the candidate's axes.
    """

    batch: int
    num_kv_heads: int
    tokens: int
    head_dim: int
    value_dim: int
    embed_dim: int = 0
    laid_out: Callable[[Array], Array] = lambda array: array

    def arrays(self, tokens: int, heads_last: bool) -> tuple[Array, Array]:
        """Zeros for the keys and the values of so many tokens."""
        sizes = (self.batch, tokens, self.num_kv_heads) if heads_last else (self.batch, self.num_kv_heads, tokens)
        return self.laid_out(np.zeros((*sizes, self.head_dim))), self.laid_out(np.zeros((*sizes, self.value_dim)))

    @property
    def sizes(self) -> dict[str, int]:
        """The same by role, for what makes a cache by itself."""
        return {
            "max_batch": self.batch,
            "num_kv_heads": self.num_kv_heads,
            "context_length": self.tokens,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "embed_dim": self.embed_dim,
            "layers": 1,
        }


Kind = Literal["own", "none", "fresh", "dict", "list", "keys", "empty", "room"]


@dataclass(frozen=True)
class Way:
    """One way of exercising a cache.

    Attributes:
        kind: what the first call gets: ``own`` nothing, for the candidate keeps it; ``none`` None; ``fresh`` what its
            file makes; an empty ``dict`` or ``list``; ``keys`` a dict with the keys that the source names; ``empty``
            arrays without tokens; ``room`` zeros for all tokens.
        wide: whether masks have a column for every token that there is room for.
        heads_last: whether arrays are ``(batch, token, head, dim)`` rather than ``(batch, head, token, dim)``.
        keys: the keys of the dict.
    """

    kind: Kind
    wide: bool = False
    heads_last: bool = False
    keys: tuple[str, ...] = ()

    def first(self, role: str, argument: Argument, room: Room) -> Any:
        """What the argument of that role gets in the first call."""
        pair = room.arrays(room.tokens if self.kind == "room" else 0, self.heads_last)
        if role in ("k_cache", "v_cache"):
            return None if self.kind == "none" else pair[role == "v_cache"]
        plain: Mapping[Kind, Any] = {"none": None, "dict": {}, "list": [], "empty": pair, "room": pair}
        if self.kind == "keys":
            return {key: _under(key, pair) for key in self.keys}
        return Fresh(argument.annotation, room.sizes) if self.kind == "fresh" else plain[self.kind]

    def __str__(self) -> str:
        return "its own" if self.kind == "own" else "handed over and taken back"


def _under(key: str, pair: tuple[Array, Array]) -> Any:
    """What stands under a key of a cache that is a dict and holds nothing yet."""
    if re.search(r"len|pos|idx|index|offset|size|count|step", key, re.IGNORECASE):
        return 0
    return pair["v" in key.lower()] if re.search(r"k|v", key, re.IGNORECASE) else None


def ways_of(signature: Signature, facts: Facts) -> list[Way]:
    """Every way of exercising a candidate's cache, the likeliest first; empty where nothing speaks of one.

    The cache of a cross attention holds the keys and values of the other sequence, which doesn't come bit by bit.
    """
    if signature.has("source") and signature.roles["source"].required:
        return []
    kinds = list(dict.fromkeys(_kinds(signature, facts)))
    keys = tuple(dict.fromkeys(_keys(signature, facts)))
    wide = (False, True) if signature.has("mask") else (False,)
    return [
        Way(kind, is_wide, heads_last, keys if kind == "keys" else ())
        for kind, is_wide in product(kinds, wide)
        for heads_last in ((False, True) if signature.has("x") and kind in ("empty", "room", "keys") else (False,))
    ]


def _kinds(signature: Signature, facts: Facts) -> Iterator[Kind]:
    if signature.has("cache"):
        argument = signature.roles["cache"]
        said = argument.annotation.lower()
        if not argument.required or "none" in said or "optional" in said:
            yield "none"
        if "dict" in said:
            yield from ("dict", "keys")
        if "list" in said:
            yield "list"
        if "tuple" in said:
            yield from ("empty", "room")
        yield from ("fresh", "none", "dict", "keys", "list", "empty", "room")
    elif signature.has("k_cache", "v_cache") and (signature.has("key") or signature.has("x")):
        sized = signature.has("cache_lens") or signature.has("query_offset") or signature.has("position_ids")
        yield from ("room", "empty", "none") if sized else ("none", "empty", "room")
    elif facts.what != "function":
        yield "own"


def _keys(signature: Signature, facts: Facts) -> Iterator[str]:
    """The keys that the source reads a cache by: ``cache["k"]``."""
    if signature.has("cache"):
        name = re.escape(signature.roles["cache"].name)
        yield from re.findall(rf"\b{name}\s*\[\s*[\"'](\w+)[\"']\s*\]", facts.source)


def speaks_of_one(signature: Signature, facts: Facts) -> bool:
    """Whether a name of the candidate's speaks of a cache of its own; one of another name is known by what it does."""
    names = [*facts.arrays, *facts.attributes, *re.findall(r"self\.(\w+)", facts.source)]
    return signature.has("use_cache") or any(is_of_a_cache(name, asked_for=asks_for_one(signature)) for name in names)


def is_of_a_cache(name: str, *, asked_for: bool = True) -> bool:
    """Whether an attribute of this name may hold keys and values of tokens before.

    Args:
        name: its dotted name.
        asked_for: whether an argument of the call speaks of a cache; otherwise ``self.keys`` may be kept to look at.
    """
    name = name.lower()
    named = _CACHED.search(name) or (asked_for and _KEYS_OR_VALUES.search(name))
    return bool(named) and not _NO_CACHE.search(name)


def asks_for_one(signature: Signature) -> bool:
    """Whether an argument of the call speaks of a cache that the candidate keeps."""
    return any(signature.has(role) for role in ("use_cache", "query_offset", "position_ids"))


_CACHED = re.compile(r"cache|past|history|memory|prev_?(k|v)|(k|v|kv|key|value)s?_?(buf|state|store|mem)")
_KEYS_OR_VALUES = re.compile(r"(^|\.)(k|v|keys|values)$")
_NO_CACHE = re.compile(r"cos|sin|rope|rotary|freq|mask|bias|_seq_len_cached|weight|proj")


def is_overwritten(signature: Signature, facts: Facts) -> bool:
    """Whether a cache of its own is written to by place, so that a sequence that begins anew needs no emptying."""
    placed = signature.has("query_offset") or signature.has("position_ids")
    return placed and any(is_of_a_cache(name) for name in facts.arrays)
