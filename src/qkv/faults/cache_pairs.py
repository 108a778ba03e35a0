"""Faults of the pair that a cache is: keys taken for values."""

from __future__ import annotations

from collections.abc import Callable

from qkv.faults.caching import call_of_each_key, held
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CACHE
from qkv.faults.replacing import chain, impossible
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import position
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "cache-key-value-swapped",
    Stage.POSITION,
    title="the cache's keys are taken for values, and its values for keys",
    explanation=(
        "A cache is a pair whose two halves have the same shape, so nothing stops a program that unpacks "
        "it the wrong way round. The first call is right; after it, older tokens are looked for by their values."
    ),
    repair="cached_key, cached_value = cache  # in the order in which they were put there",
    needs=[CACHE],
)
def cache_key_value_swapped(spec: AttentionSpec) -> Ways:
    """Key and value of older tokens in each other's place: once, or back again with every call."""
    swaps: dict[str, Callable[[Run], list[bool]]] = {
        "with every call anew": lambda run: [
            (call_of_each_key(run)[-1] - call) % 2 == 1 for call in call_of_each_key(run)
        ],
        "as they are read": lambda run: [token < held(run) for token in range(len(call_of_each_key(run)))],
    }
    for note, swapped in swaps.items():
        yield note, _swapped(swapped, turned=True)
        if spec.rope is not None:
            yield f"{note}, before rope", _swapped(swapped, turned=False)


def _swapped(which: Callable[[Run], list[bool]], turned: bool) -> Replacements:
    def given(run: Run) -> Run:
        if run.key.shape != run.value.shape:
            raise impossible("keys and values are not equally wide")
        swapped = run.xp.asarray(which(run))[:, None]

        def mixed(own: Array, other: Array) -> Array:
            return run.xp.where(swapped, other, own)

        return run.but(key=mixed(run.key, run.value), value=mixed(run.value, run.key))

    return {Stage.POSITION: chain(position, given) if turned else chain(given, position)}
