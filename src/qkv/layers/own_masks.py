"""A layer's own mask: what it says of the layer, the cache that fits it, and what `attend` gets of it in a call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, reduce
from operator import and_
from typing import NamedTuple

from torch import Tensor

from qkv.layers.cache import Cache, FixedCache, GrowingCache, RingCache
from qkv.layers.masked_softmax import check_mask
from qkv.masks import (
    And,
    Causal,
    Dilated,
    Everything,
    Mask,
    Not,
    Or,
    PerHead,
    SlidingWindow,
    causal as causal_mask,
    window as window_mask,
)


def own_mask(causal: bool, window: int | None, mask: Mask | None) -> Mask:
    """The mask of a layer: what all of the three allow."""
    rules = [causal_mask()] if causal else []
    rules += [] if window is None else [window_mask(window)]
    rules += [] if mask is None else [mask]
    return reduce(and_, rules) if rules else Everything()


def is_causal(mask: Mask) -> bool:
    """Whether no token attends to a later one, by what is joined in the mask."""
    return any(rule == causal_mask() for rule in _joined(mask))


def window_of(mask: Mask) -> int | None:
    """How many keys a token sees at most on either side, by what is joined in the mask; None means all."""
    return min((rule.size for rule in _joined(mask) if isinstance(rule, SlidingWindow)), default=None)


def new_cache(own: Mask, max_length: int | None, spare: int) -> Cache:
    """An empty cache for a layer with this mask; see `Attention.new_cache`."""
    window = window_of(own)
    if max_length is not None:
        return FixedCache(max_length)
    return GrowingCache() if window is None else RingCache(window, spare=spare)


def _joined(mask: Mask) -> Iterator[Mask]:
    if isinstance(mask, And):
        yield from _joined(mask.left)
        yield from _joined(mask.right)
    else:
        yield mask


class CallMask(NamedTuple):
    """The mask of one call, by positions.

    Attributes:
        rule: who may attend to whom.
        table: who may besides, booleans that broadcast to `(batch, head, query, key)`; or None.
    """

    rule: Mask
    table: Tensor | None = None

    def seen_from(self, first: int) -> Mask | tuple[Mask, Tensor]:
        """The same for `attend`, where the first key that is handed over stands at this position."""
        mask = self.rule if first == 0 or _knows_distances_only(self.rule) else self.rule.shifted(-first)
        if self.table is None:
            return mask
        table = self.table[..., first:] if self.table.shape[-1] > 1 else self.table  # batch head query key
        return mask, table


def call_mask(own: Mask, given: Mask | Tensor | None, scores: tuple[int, int, int, int]) -> CallMask:
    """The mask of one call.

    Args:
        own: the layer's.
        given: what was handed over, over all keys since position 0; or None.
        scores: how many sequences, heads, queries and keys there are, those that are gone among them.

    Raises:
        TypeError: a tensor is not boolean.
        ShapeError: it does not broadcast to the scores, or a mask has other numbers.
    """
    if isinstance(given, Tensor):
        check_mask(given, scores)
        return CallMask(own, given[(None,) * (4 - given.ndim)])
    rule = own if given is None else given if own == Everything() else own & given
    rule.must_fit(scores[3], batch=scores[0], num_heads=scores[1])
    return CallMask(rule)


@lru_cache
def _knows_distances_only(mask: Mask) -> bool:
    return all(
        isinstance(part, Everything | Causal | SlidingWindow | Dilated | And | Or | Not | PerHead)
        for part in mask.parts()
    )
