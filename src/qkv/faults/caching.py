"""Tools for faults of caches: what stands in a cache when a chunk comes, and what a chunk's queries are given of it.

A sequence that comes in chunks is computed chunk by chunk (`qkv.oracle.chunks`): the last ``steps[-1]`` of the keys are
the chunk's own, those before them came out of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qkv.faults.replacing import impossible
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import mask, position
from qkv.vocabulary import Stage


def steps_of(run: Run) -> tuple[int, ...]:
    """The numbers of tokens of the calls so far.

    Raises:
        ShapeError: nothing stands in a cache yet.
    """
    if len(run.inputs.steps) < 2:
        raise impossible("nothing stands in a cache yet")
    return run.inputs.steps


def held(run: Run) -> int:
    """How many tokens the cache should hold when the call begins.

    Raises:
        ShapeError: none.
    """
    return sum(steps_of(run)[:-1])


def call_of_each_key(run: Run) -> list[int]:
    """The number of the call that each key came with."""
    return [call for call, count in enumerate(steps_of(run)) for _ in range(count)]


def begin_of_each_key(run: Run) -> list[int]:
    """The position of the first token of the call that each key came with."""
    steps = steps_of(run)
    return [sum(steps[:call]) for call in call_of_each_key(run)]


def seeing(visible: Callable[[Run, Array], Array]) -> Replacements:
    """The ``mask`` stage, and keys hidden besides: all but those that are visible by their places, ``(key,)``."""

    def masked(run: Run) -> Run:
        done = mask(run)
        shown = visible(run, run.token_positions()[1]) & done.may_attend
        if bool(run.xp.all(shown == done.may_attend)):
            raise impossible("those keys are hidden anyway")
        hidden = run.array(-float("inf"))
        return done.but(may_attend=shown, scores=run.xp.where(shown, done.scores, hidden))

    return {Stage.MASK: masked}


def holding(
    slots: Callable[[Run], Sequence[int]], *, turned: bool = True, of: Sequence[str] = ("key", "value")
) -> Replacements:
    """Keys and values as a cache gives them: for each slot the number of the token in it, or -1 for an empty one.

    Args:
        slots: as many as there are tokens so far.
        turned: whether keys are turned by rope before they are put there, or afterwards, by the number of their slot.
        of: which of the two arrays the cache gives so; the other is right.
    """

    def given(run: Run) -> Run:
        numbers = list(slots(run))
        if numbers == list(range(run.key.shape[-2])):
            raise impossible("the cache holds what it should")
        run = position(run) if turned else run
        run = run.but(**{name: _taken(run, getattr(run, name), numbers) for name in of})
        return run if turned else position(run)

    return {Stage.POSITION: given}


def _taken(run: Run, x: Array, numbers: Sequence[int]) -> Array:
    index = run.xp.asarray([max(number, 0) for number in numbers])
    filled = run.array([number >= 0 for number in numbers])
    return run.xp.take(x, index, axis=-2) * filled[:, None]
