"""Stretches: where code that goes through the tokens in blocks takes others than it should."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from qkv.location.blaming import Blame
from qkv.location.frontier import Frontier, Suspect
from qkv.location.kinds import ASSEMBLING, COMPARING, HIDING
from qkv.location.masking import SCORED, first_mask
from qkv.location.misplaced import first_of
from qkv.recognition import REPEATED, Sight


def of_other_tokens(frontier: Frontier) -> int | None:
    """Where a mask is made, or the places that it counts, of other tokens than the stretch of scores that it hides.

    None where each stretch is hidden by its own mask, or nothing goes through the tokens in stretches.
    """
    for number in sorted(frontier.slice):
        hides = frontier.operation(number).name in HIDING
        scores = (sight for _, sight in frontier.sighted(number) if "key" in sight.axes and sight.stage in SCORED)
        stretch = next((sight.stretch for sight in scores), {}) if hides else {}
        for value in frontier.flow.operands(number) if {*stretch} == {"query", "key"} else ():
            array = frontier.recognition.recording.values[value].array
            behind = frontier.flow.behind([value])
            suspected = any(one.operation in behind for one in frontier.suspects)
            if array.dtype == bool and not suspected and not _hides_as_meant(frontier, array, stretch):
                counted = next(_counted_elsewhere(frontier, value, stretch), None)
                return _of_another_stretch(frontier, value) if counted is None else counted
    return None


def _hides_as_meant(frontier: Frontier, mask: np.ndarray, stretch: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a mask of some tokens is what is meant of these, or a part of that, True = may attend or the reverse."""
    queries, keys = (slice(*stretch[axis]) for axis in ("query", "key"))
    for meant in frontier.recognition.masks:
        part = meant[:, :, queries if meant.shape[2] > 1 else slice(None), keys]
        shape = np.broadcast_shapes(part.shape, mask.shape)
        alike = np.broadcast_to(part, shape) == np.broadcast_to(mask, shape)
        if alike.all() or not alike.any():
            return True
    return False


def _counted_elsewhere(frontier: Frontier, mask: int, stretch: Mapping[str, tuple[int, int]]) -> Iterator[int]:
    """The operations that make places of other tokens which are compared on the way to a mask."""
    for number in sorted(frontier.flow.behind([mask])):
        for value in frontier.flow.operands(number) if frontier.operation(number).name in COMPARING else ():
            sight = frontier.recognition.sights[value]
            if sight is None or not sight.name.startswith("positions"):
                continue
            if not {*sight.stretch.values()} <= {*stretch.values()}:
                maker = frontier.origin(value, partial(_alike, frontier, sight))
                yield from () if maker is None else (maker,)


def counted_as_keys(frontier: Frontier, number: int) -> int | None:
    """The operation that makes places of keys which a comparison has for its rows, those of queries; None for none."""
    for value in frontier.flow.operands(number) if frontier.operation(number).name in COMPARING else ():
        sight = frontier.recognition.sights[value]
        if sight is not None and sight.name == "positions of the keys" and sight.axes[-2:] == ("key", REPEATED):
            return frontier.origin(value, partial(_alike, frontier, sight))
    return None


def _alike(frontier: Frontier, sight: Sight, number: int) -> int | None:
    """The places that an operation is given and only lays out."""
    sights = frontier.recognition.sights
    given = ((value, sights[value]) for value in frontier.flow.operands(number))
    return next(
        (value for value, other in given if other and (other.name, other.stretch) == (sight.name, sight.stretch)), None
    )


def _of_another_stretch(frontier: Frontier, mask: int) -> int | None:
    """The operation that makes a mask which some other tokens are meant to have; None for one that nobody is."""
    sight = frontier.recognition.sights[mask]
    return None if sight is None or not sight.form else first_mask(frontier, mask, sight)


def keys_left_out(frontier: Frontier) -> Blame | None:
    """The operation that takes the last keys of a context which is complete without all; None for none such."""
    for value in _laid_together(frontier):
        sight = frontier.recognition.sights[value]
        if sight is not None and "context" in sight.name and "key" in sight.stretch:
            taken = max(_taking_keys(frontier, value), default=None)
            return None if taken is None else Blame(taken, confirmed=False, bound="end")
    return None


def cut_apart(frontier: Frontier, suspect: Suspect) -> Blame | None:
    """The operations that take two stretches of keys which a suspect joins, where one doesn't follow the other."""
    given = [(value, sight) for value, sight in frontier.sighted(suspect.operation) if "key" in sight.stretch]
    if len(given) != 2 or given[0][1].name != given[1][1].name:
        return None
    (first, one), (second, other) = sorted(given, key=lambda pair: pair[1].stretch["key"])
    cuts = [max(_taking_keys(frontier, value), default=None) for value in (second, first)]
    if one.stretch["key"][1] == other.stretch["key"][0] or cuts[0] is None:
        return None
    return Blame(cuts[0], confirmed=False, before=cuts[1])


def _laid_together(frontier: Frontier) -> Iterator[int]:
    """What is returned, and what the suspects only lay together."""
    yield from frontier.recognition.recording.returned
    for one in frontier.suspects:
        if frontier.operation(one.operation).name in ASSEMBLING:
            yield from frontier.flow.operands(one.operation)


def _made(frontier: Frontier, number: int) -> Iterator[Sight | None]:
    return map(frontier.recognition.sights.__getitem__, frontier.operation(number).results)


def _taking_keys(frontier: Frontier, value: int) -> Iterator[int]:
    """The operations behind a value that cut some keys, or their values, out of all."""
    for number in frontier.flow.behind([value]):
        given = map(frontier.recognition.sights.__getitem__, frontier.flow.operands(number))
        if any(map(_is_of_some_keys, _made(frontier, number))) and not any(map(_is_of_some_keys, given)):
            yield number


def _is_of_some_keys(sight: Sight | None) -> bool:
    return sight is not None and sight.of in ("key", "value") and "key" in sight.stretch


def unlike_the_others(frontier: Frontier, suspect: Suspect) -> int | None:
    """What makes the part that a suspect lays together with others, if those are scaled and it isn't; else None."""
    if frontier.operation(suspect.operation).name not in ASSEMBLING:
        return None
    parts = [(value, sight) for value, sight in frontier.sighted(suspect.operation) if sight.of == "attn_scores"]
    bare = [part for part in parts if part[1].factor == 1.0]
    return first_of(frontier, *bare[0]) if bare and len(bare) < len(parts) else None
