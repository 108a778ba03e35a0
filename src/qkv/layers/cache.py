"""Caches: the keys and values of the tokens so far, so that each call computes only those of its own tokens.

Three kinds, of one build: one grows in place, one has a fixed size, and one keeps a window. Each hands out views of its
own memory in the order of positions, and says where the first of them stands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qkv.errors import ShapeError, SpecError
from qkv.masks import Mask, Span
from qkv.masks.numbers import whole_number


class Held(NamedTuple):
    """What the queries of a call attend to.

    Attributes:
        key: `(batch, kv_head, key, head_dim)`, in the order of positions.
        value: `(batch, kv_head, key, value_dim)`.
        first: position of the first key.
    """

    key: Tensor
    value: Tensor
    first: int


class Cache(ABC):
    """Keys and values of one layer. Memory is taken with the first tokens, in their dtype and on their device.

    It is for inference: what it holds has no gradient, and a call that asks for one is refused.
    """

    _window: int | None = None
    """How many keys a query sees at most, itself included; None means all."""
    _spare: int = 0
    """How many keys beyond these are kept."""

    def __init__(self) -> None:
        self._key: Tensor | None = None  # batch kv_head room head_dim
        self._value: Tensor | None = None  # batch kv_head room value_dim
        self.reset()

    @property
    def length(self) -> int:
        """How many tokens there were so far, and so the position of the next one."""
        return self._length

    @property
    def first(self) -> int:
        """The position of the first key that is still held."""
        return self._length - (self._stop - self._start)

    def reset(self) -> None:
        """Nothing; forgets all tokens, and keeps the memory for the next ones."""
        self._length = self._start = self._stop = 0

    def rewind(self, tokens: int) -> None:
        """Nothing; forgets the last so many tokens, for instance those of a guess that was refused.

        Raises:
            SpecError: there were fewer, or the keys that the next query then sees are gone.
        """
        if not 0 <= tokens <= self.length:
            raise SpecError(f"rewind({tokens}): the cache has seen {self.length} tokens. Write 0 to {self.length}.")
        needed = 0 if self._window is None else max(0, self.length - tokens - self._window + 1)
        if self.first > needed:
            spare = self._spare + self.first - needed
            raise SpecError(
                f"rewind({tokens}): the next query would stand at position {self.length - tokens} and see keys from "
                f"{needed} on, and those before {self.first} are gone.\n"
                f"Make the cache with room to go back: RingCache({self._window}, spare={spare})."
            )
        self._length -= tokens
        self._stop -= tokens

    def append(
        self, key: Float[Tensor, "batch kv_head token head_dim"], value: Float[Tensor, "batch kv_head token value_dim"]
    ) -> Held:
        """What the new tokens' queries attend to: earlier keys and values, and their own behind them.

        Args:
            key: of the new tokens, as they are to be attended to: turned by rope already.
            value: of the new tokens.

        Raises:
            ShapeError: another number of sequences, heads or channels than it holds.
            SpecError: another dtype or device, a gradient is asked for, or a fixed cache is full.
        """
        self._check(key, value)
        count = key.shape[2]
        self._make_room(key, value, count)
        assert self._key is not None
        assert self._value is not None
        before, self._stop = self._stop, self._stop + count
        with torch.no_grad():
            self._key[:, :, before : self._stop] = key
            self._value[:, :, before : self._stop] = value
        self._length += count
        seen = slice(self._start if self._window is None else max(self._start, before - self._window + 1), self._stop)
        held = Held(self._key[:, :, seen], self._value[:, :, seen], self.length - (self._stop - seen.start))
        if self._window is not None:
            self._start = max(self._start, self._stop - self._window - self._spare)
        return held

    def must_serve(self, mask: Mask, count: int) -> None:
        """Nothing, where the keys that the next so many queries may see under a mask are still there.

        Raises:
            SpecError: the mask reaches keys that are gone, now or once the window is full.
        """
        if self._window is None:
            return
        query = max(self.length, self._window)
        if mask.reach(Span(query, query + max(count, 1) - 1, 0, query - self._window)).some:
            raise SpecError(
                f"this cache keeps {self._window} keys, and the layer's mask is {mask}: it reaches further back.\n"
                f"Give the layer causal=True, window={self._window} or less, or take a GrowingCache()."
            )

    @abstractmethod
    def _room_for(self, tokens: int, room: int) -> int:
        """How much room to take for so many tokens, where there was too little."""

    def _make_room(self, key: Tensor, value: Tensor, count: int) -> None:
        room = 0 if self._key is None else self._key.shape[2]
        if self._key is not None and self._stop + count <= room:
            return
        kept = slice(self._start, self._stop)
        wanted = self._room_for(self._stop - self._start + count, room)
        # A tensor made in inference mode could not be written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            for name, like, old in (("_key", key, self._key), ("_value", value, self._value)):
                new = torch.empty(*like.shape[:2], wanted, like.shape[3], dtype=like.dtype, device=like.device)
                if old is not None:
                    new[:, :, : kept.stop - kept.start] = old[:, :, kept]
                setattr(self, name, new)
        self._start, self._stop = 0, kept.stop - kept.start

    def _check(self, key: Tensor, value: Tensor) -> None:
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise SpecError(
                "a gradient is asked for of keys that go into a cache, and none passes through it.\n"
                "Wrap the call in torch.no_grad() or torch.inference_mode(); train without a cache."
            )
        for name, new, old in (("key", key, self._key), ("value", value, self._value)):
            if old is None:
                continue
            if (new.dtype, new.device) != (old.dtype, old.device):
                raise SpecError(
                    f"the {name}s are {new.dtype} on {new.device}, and the cache holds {old.dtype} on {old.device}. "
                    "A cache serves one layer in one dtype; make a new one after .to()"
                )
            for axis, given, held in zip(("batch", "kv_head", "dim"), _sizes(new), _sizes(old), strict=True):
                if given != held:
                    raise ShapeError(
                        f"the {name}s have {given} along axis {axis}, and the cache holds {held}. A cache serves one "
                        "layer and one batch of sequences; make a new one"
                    )

    def __repr__(self) -> str:
        return f"{type(self).__name__} with {self.length - self.first} keys of {self.length} tokens"


class GrowingCache(Cache):
    """Keeps every key. Room is doubled when it runs out, so that a step costs no copy of the past."""

    def _room_for(self, tokens: int, room: int) -> int:
        return max(tokens, 2 * room, 64)


class FixedCache(Cache):
    """Keeps every key in memory that is taken once, and refuses what goes beyond it.

    Args:
        max_length: the most tokens that it holds.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = _counting("max_length", max_length, 1)

    def _room_for(self, tokens: int, room: int) -> int:
        if tokens > self.max_length:
            raise SpecError(
                f"the cache is full: it holds {self.length} tokens of max_length={self.max_length}, and "
                f"{tokens - self.length} more were given.\nMake it larger, or take a GrowingCache()."
            )
        return self.max_length


class RingCache(Cache):
    """Keeps the last keys only, for layers with a window. Memory stays the same however long the text.

    Args:
        window: how many keys a query sees at most, itself included.
        spare: how many further keys are kept, so that so many tokens can be taken back.
    """

    def __init__(self, window: int, *, spare: int = 0) -> None:
        super().__init__()
        self._window, self._spare = _counting("window", window, 1), _counting("spare", spare, 0)
        self._room = window + spare + max(window // 2, 16)

    def _room_for(self, tokens: int, room: int) -> int:
        # What is kept moves to the front of new memory when it has reached the end: once in so many tokens, and nothing
        # has to be put in order for a step. A longer chunk has room of its own, which goes with the next tokens.
        return max(tokens, self._room)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], x.shape[3]


def _counting(name: str, value: int, least: int) -> int:
    if whole_number(value, name) < least:
        raise SpecError(f"{name} is {value}, and must be {least} or more: it counts tokens")
    return value
