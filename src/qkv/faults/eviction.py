"""Faults of caches that let old tokens go: positions counted anew, and tokens that go too early or too late."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qkv.faults.caching import begin_of_each_key, held, seeing, steps_of
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CACHE, ROPE, WINDOW
from qkv.faults.position import by_sides, turned
from qkv.faults.replacing import impossible
from qkv.masks import SlidingWindow
from qkv.oracle import Array, Replacements, Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _windows(spec: AttentionSpec) -> list[int]:
    return [part.size for part in spec.mask.parts() if isinstance(part, SlidingWindow)]


def _capped(cap: int) -> Replacements:
    """Rope at as many tokens as the cache has kept when the token comes, which is never more than ``cap``."""

    def retained(run: Run, at: Array) -> Array:
        begins = begin_of_each_key(run)
        if max(begins) <= cap:
            raise impossible("nothing has left the cache")
        moved = [token - begin + min(begin, cap) for token, begin in enumerate(begins)]
        return run.array(moved)[-len(at) :]

    def side(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, retained(run, at))

    return by_sides(side, side)


def _slots_as_positions(size: int, query_too: bool) -> Replacements:
    """Keys turned by the slot of a ring of that size, as they are read."""

    def in_the_ring(run: Run, x: Array, at: Array) -> Array:
        steps_of(run)
        if bool(run.xp.all(at < size)):
            raise impossible("the ring has not come round")
        return turned(run, x, at % size)

    def as_it_is(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, at)

    return by_sides(in_the_ring if query_too else as_it_is, in_the_ring)


def _other_caps(run: Run) -> Iterator[tuple[str, Replacements]]:
    for cap in range(1, min(run.inputs.lengths[1], 64)):
        yield f"counted to {cap} tokens, which the cache keeps", _capped(cap)


@fault(
    "cache-evicted-positions",
    Stage.POSITION,
    title="positions are counted by what the cache has kept",
    explanation=(
        "Once old tokens have left the cache, the number of tokens in it no longer says where a new one stands. Rope "
        "at that number puts all later tokens at the same position, so their distances are wrong. All is right until "
        "the first token leaves."
    ),
    repair="position = tokens_seen  # counted on, whatever has left the cache",
    needs=[ROPE, WINDOW, CACHE],
    further=_other_caps,
)
def cache_evicted_positions(spec: AttentionSpec) -> Ways:
    """``min(position, kept)`` for ``position``; or the number of the slot in a ring."""
    if spec.rope is None:
        return
    for window in _windows(spec):
        for kept in (window, window - 1, window + 1):
            yield f"counted to {kept} tokens, which the cache keeps", _capped(kept)
        yield "a key's slot in the ring is taken for its position", _slots_as_positions(window, False)
        yield "the slots in the ring are taken for positions", _slots_as_positions(window, True)


@fault(
    "cache-evicted-by-chunk",
    Stage.MASK,
    title="old tokens leave the cache for a whole call at once",
    explanation=(
        "With a window each query sees another row of keys: the first query of a chunk still needs keys that the last "
        "one does not. Where the cache is cut to the window once for all queries of a call, the first ones see too few "
        "keys, or the last ones too many. With one token at a time all is right."
    ),
    repair="seen = (query_pos[:, None] >= key_pos) & (query_pos[:, None] - key_pos < window)  # besides the cut",
    needs=[WINDOW, CACHE],
)
def cache_evicted_by_chunk(spec: AttentionSpec) -> Ways:
    """Keys from ``end - window`` on for all queries of a call, or from where the first one's window begins."""
    for window in _windows(spec):
        yield "cut after the new tokens were added", seeing(_from_the_end(window))


def _from_the_end(window: int) -> Callable[[Run, Array], Array]:
    return lambda run, key: key >= held(run) + steps_of(run)[-1] - window
