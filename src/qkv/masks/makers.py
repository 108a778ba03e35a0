"""Makers: the masks as they are written in code, with what is handed over checked and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import numpy as np

from qkv.errors import SpecError
from qkv.masks.causal_mask import Causal
from qkv.masks.dilated_mask import Dilated
from qkv.masks.documents_mask import Documents
from qkv.masks.global_tokens_mask import GlobalTokens
from qkv.masks.mask import Mask
from qkv.masks.no_mask import Everything
from qkv.masks.numbers import Numbers, whole_number, whole_numbers
from qkv.masks.padding_mask import Padding
from qkv.masks.per_head_mask import PerHead
from qkv.masks.places import Array
from qkv.masks.prefix_mask import Prefix
from qkv.masks.rule_mask import Rule
from qkv.masks.sliding_window import SlidingWindow


def causal(ahead: SupportsIndex = 0) -> Mask:
    """The mask of a query that sees itself and earlier tokens, and ``ahead`` later ones."""
    return Causal(whole_number(ahead, "causal"))


def window(size: SupportsIndex) -> Mask:
    """The mask of a query that sees the keys less than ``size`` tokens from it: ``size`` keys if it is causal too."""
    return SlidingWindow(whole_number(size, "window"))


def prefix(length: SupportsIndex) -> Mask:
    """The mask under which everyone sees the first ``length`` tokens and nothing else; with ``|`` it opens them."""
    return Prefix(whole_number(length, "prefix"))


def dilated(step: SupportsIndex) -> Mask:
    """The mask of a query that sees every ``step``-th key, counted from itself."""
    return Dilated(whole_number(step, "dilated"))


def global_tokens(count: SupportsIndex) -> Mask:
    """The mask under which the first ``count`` tokens see everything and are seen by everyone, and nothing else."""
    return GlobalTokens(whole_number(count, "global_tokens"))


def everything() -> Mask:
    """The mask that hides nothing."""
    return Everything()


def documents(ids: Any = None, *, cu_seqlens: Any = None) -> Mask:
    """The mask under which texts that are packed into one sequence don't see each other.

    Args:
        ids: the document of each token, whole numbers ``(batch, token)``, or ``(token,)`` for all sequences alike; in
            lists, arrays or tensors.
        cu_seqlens: where each document begins and where the last one ends, ``(documents + 1,)``, as flash-attention has
            it. With neither, a spec reads the documents from each call.

    Raises:
        SpecError: both are given, or one of them isn't what it should be.
    """
    if cu_seqlens is None:
        return Documents(None if ids is None else whole_numbers(ids, "documents ids", ("batch", "token")))
    if ids is not None:
        raise SpecError("documents was given ids and cu_seqlens. They say the same: keep one of them")
    starts = whole_numbers(cu_seqlens, "cu_seqlens", ("documents + 1",)).array
    sizes = np.diff(starts)
    if starts[0] != 0:
        raise SpecError(f"cu_seqlens starts at {starts[0]}, and must start at 0, where the first document begins")
    if (sizes < 0).any():
        at = int(np.argmax(sizes < 0))
        raise SpecError(
            f"cu_seqlens falls from {starts[at]} to {starts[at + 1]} at entry {at + 1}: it says where each document "
            "begins, and where the last one ends. Of lengths it is made by [0, *itertools.accumulate(lengths)]"
        )
    if not sizes.any():
        raise SpecError(f"cu_seqlens is {starts.tolist()}, and says of no token which document it is of")
    return Documents(Numbers(np.repeat(np.arange(len(sizes)), sizes)))


def padding(lengths: Any = None, *, queries: bool = False) -> Mask:
    """The mask under which no one sees the keys behind the end of a sequence.

    Args:
        lengths: how many tokens each sequence has, whole numbers ``(batch,)``. With none, a spec reads from each call
            which keys are tokens.
        queries: whether padding attends to nothing either, so that nothing is computed for it. For self-attention,
            whose queries stand where its keys do.

    Raises:
        SpecError: a length is below 0, or no whole number; or queries without lengths.
    """
    if lengths is None:
        return Padding(queries=queries)
    numbers = whole_numbers(lengths, "padding lengths", ("batch",))
    if numbers.array.min() < 0:
        at = int(numbers.array.argmin())
        raise SpecError(
            f"padding lengths holds {numbers.array[at]} for sequence {at}, and must be 0 or more: they count tokens"
        )
    return Padding(numbers, queries)


def rule(function: Callable[[Array, Array], Array]) -> Mask:
    """The mask of any function of positions: ``rule(lambda query, key: key <= query)``.

    Args:
        function: takes the positions of queries and of keys, arrays that broadcast to each other, and gives booleans,
            True = may attend.
    """
    if not callable(function):
        raise SpecError(
            f"rule was given {function!r}, and needs a function: rule(lambda query, key: abs(query - key) < 3)"
        )
    return Rule(function)


def per_head(masks: Iterable[Mask]) -> Mask:
    """The mask under which each query head has its own, one for each head in their order.

    Raises:
        SpecError: something in it is no mask, or nothing is in it.
    """
    each = tuple(masks)
    for number, mask in enumerate(each):
        if not isinstance(mask, Mask):
            raise SpecError(f"per_head was given {mask!r} for head {number}, and needs a mask, for instance causal()")
    if not each:
        raise SpecError("per_head was given no masks, and needs one for each query head: per_head([causal(), ...])")
    return PerHead(each)
