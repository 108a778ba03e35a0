"""Mask rules: which of the named masks makes the sets that were seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd
from operator import and_

import numpy as np

from qkv.identification.visibility import Lengths
from qkv.masks import And, Causal, Dilated, Documents, Everything, GlobalTokens, Mask, Prefix, SlidingWindow
from qkv.oracle import Inputs
from qkv.oracle.run import Run
from qkv.spec import AttentionSpec
from qkv.spec.attention_spec import QueryOffset

Sets = Mapping[Lengths, np.ndarray]
"""What may be attended to, ``(query, key)``, by lengths."""

MOST_OFFSET = 64

FEW = 9
"""Positions that the first query may stand at where no mask makes the sets otherwise."""


@dataclass(frozen=True)
class Rule:
    """A mask that makes every set that was seen.

    Attributes:
        mask: the mask.
        offsets: positions of the first query under which it does, the usual ones first.
        documents: document number of each token, where the mask keeps documents apart.
    """

    mask: Mask
    offsets: tuple[QueryOffset, ...]
    documents: tuple[int, ...] | None = None


def rule_of(sets: Sets, square: Lengths, offset: int | None = None) -> Rule | None:
    """The simplest rule that makes these sets; None where there is none.

    Args:
        sets: what was seen.
        square: the lengths to derive rules from, equal ones.
        offset: position of the first query at equal lengths, where something else has shown it.
    """
    seen = sets[square]
    if offset is not None:
        return _rule_from(sets, seen, offset)
    plain, ahead = _rule_from(sets, seen, 0), _most_ahead(seen)
    if plain is None:
        return next((rule for shift in range(1, FEW) if (rule := _rule_from(sets, seen, shift))), None)
    if not 1 < ahead < MOST_OFFSET:
        return plain
    # Queries may stand further on, each seeing up to itself, or each may see so many keys ahead.
    moved = _rule_from(sets, seen, ahead)
    if moved is None or len(str(plain.mask)) < len(str(moved.mask)) + 2:
        return plain
    return moved


def _most_ahead(seen: np.ndarray) -> int:
    """How far ahead of its query the furthest key is that some query sees."""
    queries, keys = np.nonzero(seen)
    return int((keys - queries).max(initial=0))


def _rule_from(sets: Sets, seen: np.ndarray, shift: int) -> Rule | None:
    named: tuple[QueryOffset, ...] = (shift,) if shift else ("bottom_right", "top_left")
    for mask, documents in _candidates(seen, shift):
        offsets = tuple(offset for offset in named if _makes(mask, offset, documents, sets))
        if offsets:
            return Rule(mask, offsets, documents)
    return None


def _makes(mask: Mask, offset: QueryOffset, documents: tuple[int, ...] | None, sets: Sets) -> bool:
    """Whether the mask makes every set. A query without keys may show none of them, or all alike."""
    for lengths, seen in sets.items():
        right: np.ndarray = allowed_by(mask, offset, lengths, documents)
        spread_evenly = ~right.any(axis=-1, keepdims=True) & seen.all(axis=-1, keepdims=True)
        counts = rows_at_tokens(offset, lengths) if documents is not None else slice(None)
        if ((seen & ~spread_evenly) != right)[counts].any():
            return False
    return True


def rows_at_tokens(offset: QueryOffset, lengths: Lengths) -> np.ndarray:
    """Which queries stand at a token. To which document another one belongs is anybody's guess."""
    at = np.arange(lengths[0]) + AttentionSpec(query_offset=offset).offset_for(*lengths)
    return (at >= 0) & (at < lengths[1])


def allowed_by(
    mask: Mask, offset: QueryOffset, lengths: Lengths, documents: tuple[int, ...] | None = None
) -> np.ndarray:
    """The set that a mask makes, ``(query, key)``."""
    numbers = None if documents is None else documents_for(documents, max(lengths))[None, : lengths[1]]
    inputs = Inputs(query=np.zeros((1, 1, lengths[0], 1)), key=np.zeros((1, 1, lengths[1], 1)), document=numbers)
    at = Run(AttentionSpec(mask=mask, query_offset=offset), inputs).positions()
    made: np.ndarray = np.broadcast_to(np.asarray(mask.allows(at)), (1, 1, *lengths))[0, 0]
    return made


def documents_for(documents: tuple[int, ...], length: int) -> np.ndarray:
    """Document numbers of a sequence of another length: blocks of one size go on, other documents end with the last."""
    sizes = np.bincount(documents)
    if len(sizes) > 1 and (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]:
        return np.arange(length) // sizes[0]
    known = np.array(documents[:length])
    return np.concatenate([known, np.full(max(length - len(known), 0), documents[-1])])


def _candidates(seen: np.ndarray, shift: int) -> Iterator[tuple[Mask, tuple[int, ...] | None]]:
    """Masks that may make a set of equal lengths, the first query standing at ``shift``; the simplest first."""
    everywhere = np.ones_like(seen)
    for mask in _by_distance(seen, everywhere, shift):
        yield mask, None
    leading = _leading(np.asarray(seen.all(axis=0)))
    if leading and not seen[:, leading:].any():
        yield Prefix(leading), None
    for count in (leading, *range(1, leading)):
        rest = np.arange(seen.shape[1])[None, :] >= count
        for mask in _by_distance(seen, everywhere & rest, shift):
            yield mask | Prefix(count), None
    for mask in _beside_sinks(seen, everywhere, shift):
        yield mask, None
    both = min(leading, _leading(np.asarray(seen.all(axis=1))))
    if both:
        inner = (np.arange(seen.shape[0])[:, None] >= both) & (np.arange(seen.shape[1])[None, :] >= both)
        for mask in _by_distance(seen, inner, shift):
            yield mask | GlobalTokens(both), None
    documents = _documents(seen)
    if documents is not None:
        numbers = documents_for(documents, len(documents) + shift)
        of_query, of_key = numbers[shift : shift + seen.shape[0]], numbers[: seen.shape[1]]
        for mask in _by_distance(seen, of_query[:, None] == of_key[None, :], shift):
            yield (Documents() if mask == Everything() else mask & Documents()), documents


def _beside_sinks(seen: np.ndarray, everywhere: np.ndarray, shift: int) -> Iterator[Mask]:
    """Causal masks of the distance whose first tokens all later queries see: ``causal & (window(4) | prefix(1))``."""
    later = np.tril(everywhere, shift)
    always = _leading(np.asarray((seen | ~later).all(axis=0)))
    for count in (always, *range(1, always)):
        for mask in _by_distance(seen, everywhere & (np.arange(seen.shape[1]) >= count), shift):
            first, *others = _joined(mask)
            if isinstance(first, Causal) and others:
                yield first & (reduce(and_, others) | Prefix(count))


def _joined(mask: Mask) -> list[Mask]:
    """The masks that all have to allow a key."""
    return [*_joined(mask.left), *_joined(mask.right)] if isinstance(mask, And) else [mask]


def _leading(flags: np.ndarray) -> int:
    """How many are True before the first that isn't."""
    return int(np.argmin(flags)) if not flags.all() else 0


def _documents(seen: np.ndarray) -> tuple[int, ...] | None:
    """Document numbers, a new one where no query sees both of two neighbours; None where that is never or always."""
    joined = np.asarray((seen[:, :-1] & seen[:, 1:]).any(axis=0))
    if joined.all() or not joined.any():
        return None
    return tuple(int(number) for number in np.concatenate([[0], np.cumsum(~joined)]))


def _by_distance(seen: np.ndarray, region: np.ndarray, shift: int) -> Iterator[Mask]:
    """Masks of the distance alone that make the set within a region."""
    queries, keys = np.nonzero(region)
    distance = keys - queries - shift
    least = int(distance.min(initial=0))
    pairs = np.bincount(distance - least)
    visible = np.bincount(distance - least, weights=seen[region])
    if ((visible != 0) & (visible != pairs)).any():
        return
    by_distance = {least + int(step): bool(visible[step]) for step in np.flatnonzero(pairs)}
    seen_at = [step for step, is_seen in by_distance.items() if is_seen]
    if not seen_at:
        return
    low, high = min(seen_at), max(seen_at)
    band = _band(None if low == min(by_distance) else low, None if high == max(by_distance) else high)
    within = [step for step in by_distance if low <= step <= high]
    if all(by_distance[step] for step in within):
        yield band
        return
    stride = reduce(gcd, seen_at)
    if stride > 1:
        # The ends of a dilated set stand where the last multiple is, so any bound up to the next one makes it.
        for bounded in _dilated_bands(low, high, stride, by_distance):
            if all(by_distance[step] == (step % stride == 0) for step in within):
                yield _within(bounded, Dilated(stride))
    yield from _local_and_strided(low, high, by_distance)


def _local_and_strided(low: int, high: int, by_distance: Mapping[int, bool]) -> Iterator[Mask]:
    """All near keys, and of the others every so many: ``causal & (window(4) | dilated(4))``."""
    near = min((abs(step) for step in range(low, high + 1) if not by_distance[step]), default=0)
    far = [step for step in range(low, high + 1) if by_distance[step] and abs(step) >= near]
    stride = reduce(gcd, far, 0)
    if near < 2 or stride < 2:
        return
    for bounded in _dilated_bands(low, high, stride, by_distance):
        if all(by_distance[step] == (abs(step) < near or step % stride == 0) for step in range(low, high + 1)):
            yield _within(bounded, SlidingWindow(near) | Dilated(stride))


def _within(band: Mask, mask: Mask) -> Mask:
    return mask if band == Everything() else band & mask


def _dilated_bands(low: int, high: int, stride: int, by_distance: Mapping[int, bool]) -> Iterator[Mask]:
    least, most = min(by_distance), max(by_distance)
    bottom = None if low - stride < least else low
    top = None if high + stride > most else high
    yield _band(bottom, top)
    if bottom is not None and top is not None and -bottom != top:
        yield _band(bottom - stride + 1, top)


def _band(low: int | None, high: int | None) -> Mask:
    """``low <= key - query <= high``, None for no bound."""
    if low is None:
        return Everything() if high is None else Causal(high)
    if high is None:
        return ~Causal(low - 1)
    if low == -high:
        return SlidingWindow(high + 1)
    if -low > high:
        return Causal(high) & SlidingWindow(-low + 1)
    return SlidingWindow(high + 1) & ~Causal(low - 1)


def drawn(allowed: np.ndarray) -> str:
    """A set as a picture: one line a query, ``#`` where it may attend."""
    return "\n".join("".join("#" if may else "." for may in row) for row in allowed)
