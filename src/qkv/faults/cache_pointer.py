"""Faults of the number that says how many tokens came before a call."""

from __future__ import annotations

from qkv.faults.caching import begin_of_each_key, call_of_each_key, steps_of
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CACHE
from qkv.faults.position import by_sides, turned
from qkv.oracle import Array, Run
from qkv.oracle.stages import mask
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "cache-pointer-by-calls",
    Stage.POSITION,
    title="the position goes on by one with each call, however many tokens come",
    explanation=(
        "The number of tokens so far says where the new ones stand, in rope and in the mask. Where it is raised by one "
        "after each call, as if all calls were for one token, what follows a prompt stands too near to the beginning. "
        "Handed over token by token all is right."
    ),
    repair="self.position += query_len  # and not += 1",
    needs=[CACHE],
)
def cache_pointer_by_calls(spec: AttentionSpec) -> Ways:
    """The number of calls for the number of tokens before, in the mask, in rope, or in both."""
    rope = by_sides(_counted_by_calls, _counted_by_calls)
    yield "in the mask", {Stage.MASK: _masked_by_calls}
    if spec.rope is not None:
        yield "in rope", rope
        yield "in rope and the mask", {**rope, Stage.MASK: _masked_by_calls}


def _masked_by_calls(run: Run) -> Run:
    seen = run.but(spec=run.spec.but(query_offset=len(steps_of(run)) - 1))
    return mask(seen).but(spec=run.spec)


def _counted_by_calls(run: Run, x: Array, at: Array) -> Array:
    pairs = zip(call_of_each_key(run), begin_of_each_key(run), strict=True)
    moved = [token - begin + call for token, (call, begin) in enumerate(pairs)]
    return turned(run, x, run.array(moved)[-len(at) :])
