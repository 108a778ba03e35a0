"""Sides: how far a query sees before and after its own key, as flash-attention's ``window_size=(left, right)`` says."""

from __future__ import annotations

from qkv.masks.causal_mask import Causal
from qkv.masks.global_tokens_mask import GlobalTokens
from qkv.masks.mask import And, Mask, Not, Or
from qkv.masks.no_mask import Everything
from qkv.masks.prefix_mask import Prefix
from qkv.masks.sliding_window import SlidingWindow

Sides = tuple[int | None, int | None]
"""Keys before a query's own, and after it; None for no bound."""


def sides_of(mask: Mask) -> Sides:
    """How many keys before and after its own a query sees by a mask, without those that the mask opens to everyone."""
    match mask:
        case SlidingWindow(size=size):
            return size - 1, size - 1
        case Causal(ahead=ahead):
            return None, ahead
        case Not(of=Causal(ahead=ahead)):
            return -ahead - 1, None
        case And(left=left, right=right):
            (before, after), (also_before, also_after) = sides_of(left), sides_of(right)
            return _least(before, also_before), _least(after, also_after)
        case Or(left=rest, right=Prefix() | GlobalTokens()) | Or(left=Prefix() | GlobalTokens(), right=rest):
            return sides_of(rest)
    return None, None


def window_of(sides: Sides) -> Mask:
    """The mask of a query that sees so many keys before and after its own."""
    match sides:
        case None, None:
            return Everything()
        case None, after if after is not None:
            return Causal(after)
        case before, None if before is not None:
            return ~Causal(-before - 1)
        case before, after if before is not None and after is not None:
            window = SlidingWindow(max(before, after) + 1)
            if before == after:
                return window
            return Causal(after) & window if before > after else window & ~Causal(-before - 1)
    raise AssertionError(sides)


def _least(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)
